"""Write group: several writes with one common completion."""

from __future__ import annotations

import threading

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError


class WriteGroup:
    """The on_done of each of `count` writes. Calls the group's on_done after the last write, with the first error.
    Thread-safe.

    A write that cannot begin raises to its caller and does not count. Then the group's on_done is never called.
    """

    def __init__(self, count: int, on_done: OnDone) -> None:
        assert count > 0, "nothing to join"
        self._on_done = on_done
        self._lock = threading.Lock()  # Guards the fields below.
        self._left = count
        self._error: TsdbError | None = None

    def __call__(self, error: TsdbError | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left:
                return
        self._on_done(self._error)

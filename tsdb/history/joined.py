"""Joined: several writes that are answered as one."""

from __future__ import annotations

import threading

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError


class Joined:
    """Called once for each of `count` writes, it calls on_done after the last, with the first error. Thread-safe.

    When one of them cannot begin, which raises to the caller, on_done is never called: the count is not reached.
    """

    def __init__(self, count: int, on_done: OnDone) -> None:
        assert count > 0, "nothing to join"
        self._on_done = on_done
        self._lock = threading.Lock()  # Guards what is below.
        self._left = count
        self._error: TsdbError | None = None

    def __call__(self, error: TsdbError | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left:
                return
        self._on_done(self._error)

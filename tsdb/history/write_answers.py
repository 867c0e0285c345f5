"""Answers to writes: several joined into one, or a wait for the answer to one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError, Unavailable


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


def write_sync(begin: Callable[[OnDone], None], timeout_s: float = 30.0) -> None:
    """Wait for the answer: `write_sync(lambda done: store.write_loaded(loaded, done))`. Raises the error of on_done.

    Raises Unavailable (timeout) without an answer: the row may or may not be there.
    """
    answer: Future[TsdbError | None] = Future()
    begin(answer.set_result)
    try:
        error = answer.result(timeout_s)
    except TimeoutError:
        raise Unavailable(f"history did not answer a write within {timeout_s:g} s", reason="timeout") from None
    if error is not None:
        raise error

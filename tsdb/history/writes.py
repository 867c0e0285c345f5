"""Writes: their bytes in flight, and their answers: several joined into one, or a wait for the answer to one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from tsdb.history.interface import OnDone
from tsdb.history.statement_metrics import count_failure, inflight_bytes
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.byte_budget import ByteBudget

ROW_BYTES = 256  # Memory of a row beside its value: keys and the driver's objects.


def write_budget(bytes_max: int) -> ByteBudget:
    """A budget for the bytes that wait for a store's answer. A write of any size may start alone."""
    return ByteBudget(bytes_max, admits_one=True, gauge=inflight_bytes)


def reserve(budget: ByteBudget, size: int, timeout_s: float) -> None:
    """Reserve `size` bytes for a write, until its answer gives them back.

    Raises Overloaded (inflight_full) without capacity within timeout_s, Unavailable (store_closed) after a close.
    """
    if budget.take(size, within_s=timeout_s):
        return
    if budget.closed:
        raise count_failure(Unavailable("the history connection is closed", reason="store_closed"))
    raise count_failure(
        Overloaded(
            f"{budget.bytes} bytes wait for history's answer and {size} more found no room in {timeout_s:g} s; "
            f"limit is {budget.bytes_max}",
            reason="inflight_full",
            retry_after_s=1.0,
        )
    )


class WriteGroup:
    """Counts `count` writes by their on_done. After the last one it calls the group's on_done with the first error.
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

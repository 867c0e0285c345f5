"""Bytes in flight: bounds the bytes that wait for a store's answer. Thread-safe.

Answers to writes: several joined into one, or a wait for the answer to one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from tsdb.history.interface import OnDone
from tsdb.history.statement_metrics import count_failure, inflight_bytes
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

ROW_BYTES = 256  # Memory of a row beside its value: keys and the driver's objects.


class InflightBytes:
    """A count with a bound. `take` waits until the count is low enough; the caller of `take` calls `give_back`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()  # Guards the fields below.
        self._bytes = 0
        self._waiting_for = 0
        self._closing = False

    def take(self, size: int, timeout_s: float) -> None:
        """Count `size` bytes as in flight. A write of any size may start when nothing else is in flight.

        Raises Overloaded (inflight_full) when the bytes do not fit within timeout_s, and Unavailable (store_closed)
        after `close`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._has_room_locked(size), timeout_s)
            if self._closing:
                raise count_failure(Unavailable("the history connection is closed", reason="store_closed"))
            if not self._has_room_locked(size):
                raise count_failure(
                    Overloaded(
                        f"{self._bytes} bytes wait for history's answer and {size} more found no room in "
                        f"{timeout_s:g} s; limit is {self._bytes_max}",
                        reason="inflight_full",
                        retry_after_s=1.0,
                    )
                )
            self._bytes += size
            self._waiting_for += 1
        inflight_bytes.inc(size)

    def give_back(self, size: int) -> None:
        """Release the `size` bytes of an answered write."""
        with self._changed:
            self._bytes -= size
            self._waiting_for -= 1
            self._changed.notify_all()
        inflight_bytes.dec(size)

    def close(self, timeout_s: float) -> int:
        """Refuse new writes and wait for the answers to all others. Returns the number of writes without an answer."""
        give_up_at = time.monotonic() + timeout_s
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting_for == 0, give_up_at - time.monotonic())
            return self._waiting_for

    def _has_room_locked(self, size: int) -> bool:
        return self._bytes == 0 or self._bytes + size <= self._bytes_max


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

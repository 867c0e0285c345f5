"""Bytes in flight: bounds the memory of all requests that wait for the log.

A reservation lasts until its request has been answered and the log has answered each of its appends. So a request past
its deadline still counts while its records are in the log's queue. Thread-safe.
"""

from __future__ import annotations

import threading
from types import TracebackType

from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.metrics import gauge

# A healthy log answers its queue within this time, and a sender's buffer grows little.
RETRY_AFTER_S = 0.25
# Another gateway replaces a draining one; the sender's next try should find it.
DRAINING_RETRY_AFTER_S = 1.0

inflight_bytes = gauge("tsdb_ingest_inflight_bytes", "Bytes of requests that the log has not answered yet.")


class Inflight:
    """Reservations of at most `bytes_max` bytes in total; none after `close()`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition()  # Guards all below.
        self._bytes = 0
        self._open = 0
        self._closed = False

    def reserve(self, size: int) -> Reservation:
        """Raises Overloaded (inflight_bytes) when the bytes are not free now, Unavailable (draining) after close()."""
        with self._changed:
            if self._closed:
                raise Unavailable(
                    "the gateway is draining: send to another one",
                    reason="draining",
                    retry_after_s=DRAINING_RETRY_AFTER_S,
                )
            if self._bytes + size > self._bytes_max:
                raise Overloaded(
                    f"{self._bytes} bytes wait for the log and this request has {size}; limit is {self._bytes_max} "
                    "(inflight_bytes_max)",
                    reason="inflight_bytes",
                    retry_after_s=RETRY_AFTER_S,
                    got=self._bytes + size,
                    limit=self._bytes_max,
                )
            self._add_locked(size, 1)
        return Reservation(self, size)

    def close(self) -> None:
        """Refuse further reservations; existing ones stay."""
        with self._changed:
            self._closed = True

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, timeout_s)

    @property
    def bytes(self) -> int:
        with self._changed:
            return self._bytes

    def _give_back(self, size: int) -> None:
        with self._changed:
            self._add_locked(-size, -1)
            self._changed.notify_all()

    def _add_locked(self, size: int, count: int) -> None:
        self._bytes += size
        self._open += count
        inflight_bytes.set(self._bytes)


class Reservation:
    """Counts its holders: the request (as a context manager) and each batch of appends. The last release frees it."""

    def __init__(self, inflight: Inflight, size: int) -> None:
        self._inflight = inflight
        self._size = size
        self._lock = threading.Lock()  # Guards _holders.
        self._holders = 1

    def hold(self) -> None:
        """Add a user of the reservation, which calls `release` once."""
        with self._lock:
            assert self._holders > 0, "a reservation that was given back cannot be held"
            self._holders += 1

    def release(self) -> None:
        """Remove a holder; the last one frees the bytes."""
        with self._lock:
            self._holders -= 1
            last = self._holders == 0
        if last:
            self._inflight._give_back(self._size)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

"""Bytes in flight: bounds the memory of all requests that wait for the log.

A reservation lasts until its request has been answered and the log has answered each of its appends. So a request past
its deadline still counts while its records are in the log's queue. Thread-safe.
"""

from __future__ import annotations

import threading
from types import TracebackType

from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.metrics import gauge

# A healthy log answers its queue within this time, and a sender's buffer grows little.
RETRY_AFTER_S = 0.25
# Another gateway replaces a draining one; the sender's next try should find it.
DRAINING_RETRY_AFTER_S = 1.0

inflight_bytes = gauge("tsdb_ingest_inflight_bytes", "Bytes of requests that the log has not answered yet.")


def reserve(budget: ByteBudget, size: int) -> Reservation:
    """Reserve `size` bytes, at least one, so that a drain waits for each request.

    Raises Overloaded (inflight_bytes) when the bytes are not free now, Unavailable (draining) after a close.
    """
    size = max(size, 1)
    if budget.take(size):
        return Reservation(budget, size)
    if budget.closed:
        raise Unavailable(
            "the gateway is draining: send to another one", reason="draining", retry_after_s=DRAINING_RETRY_AFTER_S
        )
    waiting = budget.bytes
    raise Overloaded(
        f"{waiting} bytes wait for the log and this request has {size}; limit is {budget.bytes_max} "
        "(inflight_bytes_max)",
        reason="inflight_bytes",
        retry_after_s=RETRY_AFTER_S,
        got=waiting + size,
        limit=budget.bytes_max,
    )


class Reservation:
    """Counts its holders: the request (as a context manager) and each batch of appends. The last release frees it."""

    def __init__(self, inflight: ByteBudget, size: int) -> None:
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
            self._inflight.give_back(self._size)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

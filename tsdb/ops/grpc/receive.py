"""Receipts: the requests that a gRPC server is receiving now, bounded in number, time and threads.

gRPC reads a message only on demand, so a call demands it only once it has a slot. Under pressure the call that has been
receiving longest is cancelled: a caller that sends slowly, or sends nothing, never locks out other callers. Pressure is
more waiting calls than requests arrive in a second: a busy server that is only slow itself cancels none. The oldest
waiting call is served first, and under pressure the newest, since the callers of older ones are more likely to have
given up. A connection that receives no other request goes before all that do. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.grpc.messages import MessageReader, Request
from tsdb.ops.grpc.threads import CallThreads
from tsdb.ops.metrics import counter, gauge

TIMEOUT_S = 10.0  # 16 MiB at 13 Mbit/s; a sender that needs longer should send smaller requests.
PATIENCE_S = 0.3  # Timeout under pressure. A message that arrived with its headers is received within milliseconds.
SOON_S = 1.0  # There is pressure when this time is too short for the waiting calls, as fast as requests arrive now.
WAIT_S = 5.0  # Wait for a slot. Each slot becomes free within PATIENCE_S, so a longer wait means overload.
RETRY_AFTER_S = 0.5
# A quarter of the slots is reserved for connections without a slot, so that a few senders never lock them out.
RESERVED_SHARE = 4

_evicted = counter(
    "tsdb_grpc_evicted_calls_total",
    "Calls cancelled before their request had arrived: slow, or the oldest when others waited for a slot or a thread.",
    "reason",
    ("timeout", "slots", "threads"),
)
_receiving = gauge("tsdb_grpc_receiving_requests", "gRPC calls whose request has not arrived yet.")


class _Receipt:
    """One call between its start and the arrival of its request."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.context = context
        self.peer = context.peer()
        self.since = time.monotonic()
        self.granted = threading.Event()
        self.arrived = False
        self.evicted = False

    def cancel(self, reason: str) -> None:
        """Cancel the call. A call that waits for a slot gets one, and its read of the request then fails."""
        _evicted.labels(reason).inc()
        self.context.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it bare
        self.granted.set()


class Receipts:
    """`slots`: number of requests that are received at once. The owner calls `relieve` every few hundred
    milliseconds while it returns True, and each second else."""

    def __init__(self, slots: int, threads: CallThreads, *, timeout_s: float = TIMEOUT_S) -> None:
        self._slots = slots
        self._reserved = slots // RESERVED_SHARE
        self._threads = threads
        self._timeout_s = timeout_s
        # Guards all below; an innermost lock.
        self._lock = threading.Lock()
        self._holding: dict[_Receipt, None] = {}  # The oldest is first.
        self._waiting: list[_Receipt] = []  # The newest is last.
        self._pressed = False
        self._arrived = 0  # Number of requests since _relieved_at.
        self._relieved_at = time.monotonic()

    def receive(
        self, reader: MessageReader, messages: Iterator[bytes], context: grpc.ServicerContext
    ) -> Request | None:
        """The call's next request, with its memory reserved; None at the end of the caller's stream.

        Raises Overloaded (receiving, request_bytes), InvalidRequest; grpc.RpcError when the call was cancelled.
        """
        with self._slot(context) as receipt:
            data = next(messages, None)
            self._arrive(receipt)
            return None if data is None else reader.take(data)

    def receive_one(self, reader: MessageReader, messages: Iterator[bytes], context: grpc.ServicerContext) -> Request:
        """Does what `receive` does, for a call with one request. Also raises InvalidRequest (no_message)."""
        request = self.receive(reader, messages, context)
        if request is None:
            raise InvalidRequest("the call needs one request message; none came", reason="no_message")
        return request

    def _arrive(self, receipt: _Receipt) -> None:
        """The request of a call has come: from now on only our own work keeps the call in its slot."""
        with self._lock:
            self._arrived += 1
            receipt.arrived = True
            evicted = receipt.evicted
        if evicted:  # Its request came between the mark and the cancellation, but the call ends anyway.
            raise Overloaded(
                "the request took too long to arrive while others waited",
                reason="receiving",
                retry_after_s=RETRY_AFTER_S,
            )

    def relieve(self) -> bool:
        """Cancel every call past the timeout, and the oldest calls while others wait for a slot or a thread and will
        not be served soon. False when no request is being received."""
        if not self._holding and not self._waiting and not self._threads.queued and not self._pressed:
            self._arrived, self._relieved_at = 0, time.monotonic()
            return False
        now = time.monotonic()
        with self._lock:
            holding = [receipt for receipt in self._holding if not receipt.arrived]
            waiting = list(self._waiting)
            served_soon = round(SOON_S * self._arrived / max(now - self._relieved_at, 1e-3))
            self._arrived, self._relieved_at = 0, now
            queued = self._threads.queued
            self._pressed = len(waiting) + queued > served_soon
        overdue = [receipt for receipt in holding if now - receipt.since > self._timeout_s]
        slow = [receipt for receipt in holding if receipt not in overdue and now - receipt.since > PATIENCE_S]
        for_slots = slow[: max(0, len(waiting) - served_soon)]
        blocked = slow[len(for_slots) :] + [receipt for receipt in waiting if now - receipt.since > PATIENCE_S]
        for_threads = blocked[: max(0, queued - served_soon)]
        for reason, receipts in (("timeout", overdue), ("slots", for_slots), ("threads", for_threads)):
            for receipt in receipts:
                if self._evicts(receipt):
                    receipt.cancel(reason)
        return True

    def _evicts(self, receipt: _Receipt) -> bool:
        """Mark a call as evicted. False when its request has arrived meanwhile: then it is handled."""
        with self._lock:
            if receipt.evicted or receipt.arrived or not (receipt in self._holding or receipt in self._waiting):
                return False
            receipt.evicted = True
            return True

    @contextmanager
    def _slot(self, context: grpc.ServicerContext) -> Iterator[_Receipt]:
        receipt = self._enter(context)
        try:
            if not receipt.granted.is_set():
                self._wait(receipt)
            yield receipt
        finally:
            self._leave(receipt)

    def _enter(self, context: grpc.ServicerContext) -> _Receipt:
        receipt = _Receipt(context)
        with self._lock:
            self._waiting.append(receipt)
            self._grant_locked()
        _receiving.inc()
        return receipt

    def _wait(self, receipt: _Receipt) -> None:
        remaining_s = receipt.context.time_remaining()
        if not receipt.granted.wait(WAIT_S if remaining_s is None else min(WAIT_S, max(0.0, remaining_s))):
            raise Overloaded(
                f"{self._slots} requests are being received and more wait; limit is {self._slots}",
                reason="receiving",
                retry_after_s=RETRY_AFTER_S,
                limit=self._slots,
            )

    def _leave(self, receipt: _Receipt) -> None:
        _receiving.dec()
        with self._lock:
            if receipt in self._holding:
                del self._holding[receipt]
            else:
                self._waiting.remove(receipt)
            self._grant_locked()

    def _grant_locked(self) -> None:
        while (receipt := self._next_locked()) is not None:
            self._waiting.remove(receipt)
            receipt.since = time.monotonic()
            self._holding[receipt] = None
            receipt.granted.set()

    def _next_locked(self) -> _Receipt | None:
        """The next waiting call of a connection without a slot, else of any while more than the reserve is free."""
        free = self._slots - len(self._holding)
        if not free or not self._waiting:
            return None
        served = {receipt.peer for receipt in self._holding}
        in_order = self._waiting[::-1] if self._pressed else self._waiting
        first = next((receipt for receipt in in_order if receipt.peer not in served), None)
        return first or (in_order[0] if free > self._reserved else None)

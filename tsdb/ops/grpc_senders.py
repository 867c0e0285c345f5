"""Senders: streams whose next message waits for a reader, and what becomes of them when the reader does not read.

gRPC takes a message from a stream when the transport has room for it, so a reader that stops reading shows as a stream
that is not resumed. Such a call first gives up its slot of a running call, and is ended after `send_timeout_s`: its
answer is memory, and its thread is one that others need. One thread looks at all streams of a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tsdb.ops.grpc_slots import CallSlots, Slot
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.periodic import Periodic

LOOK_EVERY_S = 0.2
STALLED_S = 0.25  # A reader that reads takes a message within milliseconds.
DRAIN_TIMEOUT_S = 1.0  # The send timeout of a server that ends: it waits for readers that read.
LOG_EVERY_S = 60.0
LAST_BYTES_MIN = 1 << 20  # The transport takes less without a reader.

log = get_logger(__name__)

cut_total = counter(
    "tsdb_grpc_unread_answers_cut_total",
    "Answers cut because their reader did not read: for send_timeout_s, or the longest while waiting slots ran out.",
    label="reason",
    values=("send_timeout", "waiting_requests"),
)


class Cancellable(Protocol):
    """The call of a stream."""

    def cancel(self) -> None:
        """End it now."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call it when the call ends; False when it has ended already."""


class Sender:
    """One stream. since: when its last message was handed over; None while the stream makes the next one."""

    __slots__ = ("call", "method", "since", "slot")

    def __init__(self, method: str, slot: Slot, call: Cancellable) -> None:
        self.method = method
        self.slot = slot
        self.call = call
        self.since: float | None = None


class Senders(Periodic):
    """All streams of one server. A component: `start`, `close`, `join`."""

    def __init__(
        self, slots: CallSlots, send_timeout_s: float, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("grpc-senders", LOOK_EVERY_S, self.look)
        self._slots = slots
        self._send_timeout_s = send_timeout_s
        self._monotonic = monotonic
        self._senders: set[Sender] = set()  # Adding, removing and copying are one step each under the GIL.
        self._logged_at: float | None = None

    def drain(self) -> None:
        """The server ends: readers that do not read are not waited for."""
        self._send_timeout_s = min(self._send_timeout_s, DRAIN_TIMEOUT_S)

    def add(self, sender: Sender) -> None:
        """A stream begins."""
        self._senders.add(sender)

    def remove(self, sender: Sender) -> None:
        """A stream has ended."""
        self._senders.discard(sender)

    def watch_last(self, sender: Sender, size: int) -> None:
        """The call hands over its only message, of `size` bytes, and ends when that is sent."""
        if size < LAST_BYTES_MIN:
            return
        sender.since = self._monotonic()
        self.add(sender)
        if not sender.call.add_callback(partial(self.remove, sender)):
            self.remove(sender)

    def look(self) -> None:
        """End what was not read for too long; let what is not read now wait in slots for that."""
        now = self._monotonic()
        stalled = [(at, sender) for sender in self._senders.copy() if (at := sender.since) is not None]
        stalled = sorted((one for one in stalled if now - one[0] >= STALLED_S), key=lambda one: one[0])
        timely = [sender for at, sender in stalled if now - at < self._send_timeout_s]
        for _, sender in stalled[: len(stalled) - len(timely)]:
            self._cut(sender, "send_timeout", now)
        for sender in timely:
            if self._slots.try_aside(sender.slot):
                continue
            longest = self._longest(timely, sender.slot.peer)
            if longest is not None:
                self._cut(longest, "waiting_requests", now)

    def _longest(self, timely: list[Sender], peer: str) -> Sender | None:
        """The stream that was not read for longest and that waits: of this connection if its share is used up."""
        waits = [one for one in timely if one.slot.waits and one in self._senders]
        if self._slots.share_is_full(peer):
            waits = [one for one in waits if one.slot.peer == peer]
        return next(iter(waits), None)

    def _cut(self, sender: Sender, reason: str, now: float) -> None:
        self.remove(sender)
        cut_total.labels(reason).inc()
        if self._logged_at is None or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            log.warning(
                "answer cut: its reader does not read",
                method=sender.method,
                peer=sender.slot.peer,
                reason=reason,
                send_timeout_s=self._send_timeout_s,
            )
        sender.call.cancel()

"""Senders: keeps the answer streams of a server, and ends the streams whose reader does not read.

gRPC takes a message from a stream when the transport has capacity for it. When a reader stops reading, gRPC stops
resuming the stream. Such a call first moves from a running slot to a waiting slot, and is cut after `send_timeout_s`:
its answer takes memory, and other calls need its thread. One thread checks all streams of a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tsdb.ops.grpc.slots import CallSlots, Slot
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.periodic import Periodic

LOOK_EVERY_S = 0.2
IDLE_LOOK_S = 1.0  # Time to the next look while no stream is open.
STALLED_S = 0.25  # An active reader takes a message within milliseconds.
DRAIN_TIMEOUT_S = 1.0  # The send timeout during shutdown, which waits for active readers only.
LOG_EVERY_S = 60.0
LAST_BYTES_MIN = 1 << 20  # The transport buffers smaller messages even when no reader reads.

log = get_logger(__name__)

cut_total = counter(
    "tsdb_grpc_unread_answers_cut_total",
    "Answers cut because their reader did not read: for send_timeout_s, or the longest while waiting slots ran out.",
    label="reason",
    values=("send_timeout", "waiting_requests"),
)


class Cancellable(Protocol):
    """The call of a stream, which can be cancelled."""

    def cancel(self) -> None:
        """End the call at once."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Run `callback` when the call ends; False when the call has ended already."""


class StreamSender:
    """One stream. since: time of the hand-over of its last message; None while the stream produces the next message."""

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
        self._senders: set[StreamSender] = set()  # Each of add, remove and copy is one step under the GIL.
        self._logged_at: float | None = None

    def drain(self) -> None:
        """Shorten the send timeout: the shutdown of the server does not wait for stalled readers."""
        self._send_timeout_s = min(self._send_timeout_s, DRAIN_TIMEOUT_S)

    def add(self, sender: StreamSender) -> None:
        self._senders.add(sender)

    def remove(self, sender: StreamSender) -> None:
        self._senders.discard(sender)

    def watch_last(self, sender: StreamSender, size: int) -> None:
        """Watch a call that hands over its only message, of `size` bytes, and ends once the message is sent."""
        if size < LAST_BYTES_MIN:
            return
        sender.since = self._monotonic()
        self.add(sender)
        if not sender.call.add_callback(partial(self.remove, sender)):
            self.remove(sender)

    def look(self) -> float | None:
        """Cut streams that were not read for `send_timeout_s`; move streams that stall now to waiting slots."""
        if not self._senders:
            return IDLE_LOOK_S
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
        return None

    def _longest(self, timely: list[StreamSender], peer: str) -> StreamSender | None:
        """The waiting stream that has not been read for the longest time. When the share of `peer` is used up, only
        streams of `peer` count."""
        waits = [one for one in timely if one.slot.waits and one in self._senders]
        if self._slots.share_is_full(peer):
            waits = [one for one in waits if one.slot.peer == peer]
        return next(iter(waits), None)

    def _cut(self, sender: StreamSender, reason: str, now: float) -> None:
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

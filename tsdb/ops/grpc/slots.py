"""Call slots: running and waiting calls of a gRPC server, and the share of both that one connection may hold.

A call that waits for a record, for memory or for its reader needs no core. It exchanges its running slot for a waiting
slot, so that waiting calls never block running ones. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tsdb.model.errors import Overloaded
from tsdb.ops.metrics import counter, gauge

RETRY_AFTER_S = 0.1  # A call takes milliseconds, so a slot becomes free soon.
WAITING_RETRY_AFTER_S = 1.0
RETURN_WITHIN_S = 5.0  # The longest time that a waiting call waits for a running slot.
ENTER_WITHIN_S = 1.0  # The longest time that a patient call waits for a running slot at its begin.
RECENT_S = 10.0  # Half of the running slots stays free for other connections that called within this time.
PEERS_MAX = 4096

_running = gauge("tsdb_grpc_running_requests", "gRPC calls running now, streams included.")
_waiting = gauge("tsdb_grpc_waiting_requests", "gRPC calls that wait for a record, for memory or for their reader.")
refused_total = counter(
    "tsdb_grpc_slots_refused_total",
    "gRPC calls refused because no slot was free, by the limit that was reached.",
    label="reason",
    values=("concurrent_requests", "connection_requests", "waiting_requests"),
)

_of_thread = threading.local()


class CallSlots:
    """running_max: calls that run at once. waiting_max: calls that wait at once, beyond the running ones.

    One connection gets at most half of the waiting slots, and half of the running ones when another connection called
    within RECENT_S.
    """

    def __init__(self, running_max: int, waiting_max: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.running_max = running_max
        self.waiting_max = waiting_max
        self.waiting_share = max(1, waiting_max // 2)
        self._running_share = max(1, running_max // 2)
        self._monotonic = monotonic
        self._changed = threading.Condition()  # Guards all below; an innermost lock.
        self._running: Tally[str] = Tally()  # Number by connection, without zero entries.
        self._waiting: Tally[str] = Tally()
        self._running_count = self._waiting_count = 0
        self._called_at: dict[str, float] = {}

    def enter(self, peer: str) -> Slot:
        """Take a running slot. Raises Overloaded (concurrent_requests, connection_requests)."""
        with self._changed:
            now = self._monotonic()
            self._called_at[peer] = now
            if len(self._called_at) > PEERS_MAX:
                self._forget_locked(now)
            if self._running_count >= self.running_max:
                raise self._all_run()
            if self._running[peer] >= self._running_share and self._others_locked(peer, now):
                raise self._refused(
                    "connection_requests",
                    f"{self._running[peer]} calls of this connection are running; limit is {self._running_share}, half"
                    f" of grpc_running_max, while other connections call: try again soon",
                    self._running_share,
                    RETRY_AFTER_S,
                )
            self._run_locked(peer, 1)
        return Slot(self, peer)

    def enter_patiently(self, peer: str) -> Slot:
        """Take a running slot for a short call, which waits for it up to ENTER_WITHIN_S. Such calls leave a quarter of
        the running slots to others. Raises Overloaded (concurrent_requests)."""
        limit = max(1, self.running_max * 3 // 4)
        with self._changed:
            if not self._changed.wait_for(lambda: self._running_count < limit, ENTER_WITHIN_S):
                raise self._all_run()
            self._called_at[peer] = self._monotonic()
            self._run_locked(peer, 1)
        return Slot(self, peer)

    def pass_by(self) -> Slot:
        """A slot that counts towards no limit, for a call that needs none."""
        slot = Slot(self, "")
        slot.waits = slot.left = True
        return slot

    def step_aside(self, slot: Slot) -> None:
        """Exchange a running slot for a waiting slot. Raises Overloaded (waiting_requests)."""
        with self._changed:
            if not self._step_aside_locked(slot):
                held, limit = self._waiting[slot.peer], self.waiting_share
                whose = "of this connection " if held >= limit else ""
                if held < limit:
                    held, limit = self._waiting_count, self.waiting_max
                raise self._refused(
                    "waiting_requests",
                    f"{held} calls {whose}wait; limit is {limit} (grpc_waiting_max is {self.waiting_max}): try again"
                    " later, or another replica",
                    limit,
                    WAITING_RETRY_AFTER_S,
                )

    def try_aside(self, slot: Slot) -> bool:
        """Does what `step_aside` does, but returns False where that raises."""
        with self._changed:
            return self._step_aside_locked(slot)

    def share_is_full(self, peer: str) -> bool:
        """Whether a connection holds its whole share of the waiting slots."""
        with self._changed:
            return self._waiting[peer] >= self.waiting_share

    def step_back(self, slot: Slot) -> None:
        """Exchange a waiting slot for a running slot.

        Raises Overloaded (concurrent_requests) when none becomes free within RETURN_WITHIN_S.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._running_count < self.running_max, RETURN_WITHIN_S):
                raise self._all_run()
            self._wait_locked(slot.peer, -1)
            self._run_locked(slot.peer, 1)
            slot.waits = False

    def leave(self, slot: Slot) -> None:
        """Free the slot of an ended call. A second call does nothing."""
        with self._changed:
            if slot.left:
                return
            slot.left = True
            if slot.waits:
                self._wait_locked(slot.peer, -1)
            else:
                self._run_locked(slot.peer, -1)

    def _step_aside_locked(self, slot: Slot) -> bool:
        if slot.waits or slot.left:
            return True
        if self._waiting_count >= self.waiting_max or self._waiting[slot.peer] >= self.waiting_share:
            return False
        self._run_locked(slot.peer, -1)
        self._wait_locked(slot.peer, 1)
        slot.waits = True
        return True

    def _run_locked(self, peer: str, by: int) -> None:
        self._running_count += by
        _moved(self._running, peer, by)
        _running.inc(by)
        if by < 0:
            # There are two kinds of waits with different bounds, so a thread that is woken alone may not be one that
            # can continue.
            self._changed.notify_all()

    def _wait_locked(self, peer: str, by: int) -> None:
        self._waiting_count += by
        _moved(self._waiting, peer, by)
        _waiting.inc(by)

    def _others_locked(self, peer: str, now: float) -> bool:
        return any(other != peer and now - at < RECENT_S for other, at in self._called_at.items())

    def _forget_locked(self, now: float) -> None:
        recent = {peer: at for peer, at in self._called_at.items() if now - at < RECENT_S}
        self._called_at = recent if len(recent) <= PEERS_MAX else {}

    def _all_run(self) -> Overloaded:
        return self._refused(
            "concurrent_requests",
            f"{self._running_count} calls are running; limit is {self.running_max} (grpc_running_max): try again soon",
            self.running_max,
            RETRY_AFTER_S,
        )

    def _refused(self, reason: str, text: str, limit: int, retry_after_s: float) -> Overloaded:
        refused_total.labels(reason).inc()
        return Overloaded(text, reason=reason, retry_after_s=retry_after_s, limit=limit)


class Slot:
    """The slot of one call. A context manager: binds the slot to the call's thread, and frees it on exit."""

    __slots__ = ("left", "peer", "slots", "waits")

    def __init__(self, slots: CallSlots, peer: str) -> None:
        self.slots = slots
        self.peer = peer
        self.waits = False
        self.left = False

    def __enter__(self) -> Slot:
        _of_thread.slot = self
        return self

    def __exit__(self, *exception: object) -> None:
        _of_thread.slot = None
        self.slots.leave(self)


@contextmanager
def waiting() -> Iterator[None]:
    """The call of this thread has a waiting slot inside the block. A thread without a call is not affected.

    Raises Overloaded: waiting_requests before the block, concurrent_requests after it.

    """
    slot: Slot | None = getattr(_of_thread, "slot", None)
    if slot is None or slot.waits:
        yield
        return
    slot.slots.step_aside(slot)
    yield  # After an error the call keeps the waiting slot; its end frees the slot.
    slot.slots.step_back(slot)


def step_aside() -> None:
    """The call of this thread gives its running slot back for a waiting slot, if one is free, until its end."""
    slot: Slot | None = getattr(_of_thread, "slot", None)
    if slot is not None:
        slot.slots.try_aside(slot)


def _moved(tally: Tally[str], peer: str, by: int) -> None:
    tally[peer] += by
    if not tally[peer]:
        del tally[peer]

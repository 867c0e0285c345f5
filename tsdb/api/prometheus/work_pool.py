"""WorkPool: gives slots to the blocking work of requests, with a bounded queue before them, fair to each client.

A slot stands for a core. Work that waits for another process lends its slot to queued work, so that a store or a
history that does not answer holds up only the reads that need it. One client never holds all slots while another has
none.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from tsdb.api.prometheus.errors import QUERY_QUEUE
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.lifecycle import Component, Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.threads import bind_waits, new_thread

DRAINING = "draining"
RETRY_AFTER_S = 1.0
LEND_AFTER_S = 0.05  # Most waits are shorter; work that lent its slot waits for one again.
LOOK_EVERY_S = 0.02  # For waits to lend of, while work is queued.
RETURN_WITHIN_S = 1.0  # After this time the work continues without a slot.

_waiting = gauge("tsdb_query_waiting", "PromQL queries and lookups of labels that wait for a thread.")
_lent = counter(
    "tsdb_query_slots_lent_total", "Slots of queries that waited for a store, history or the log, lent to queued ones."
)
_refused = counter(
    "tsdb_query_refused_total",
    "PromQL queries and lookups that were not begun: the queue was full, or the process was ending.",
    "reason",
    (QUERY_QUEUE, DRAINING),
)

log = get_logger(__name__)

Work = Callable[[], None]


class _Slot:
    """The slot of a thread while it works. A tsdb.ops.threads.ThreadWaits. The lock of the pool guards its fields."""

    __slots__ = ("_pool", "is_lent", "key", "waits_since")

    def __init__(self, pool: WorkPool) -> None:
        self._pool = pool
        self.key = ""  # The client of the work.
        self.waits_since: float | None = None
        self.is_lent = False

    def begin(self) -> None:
        self.waits_since = time.monotonic()

    def end(self) -> None:
        self._pool.take_back(self)


class WorkPool(Component):
    """A component that runs work on threads. slots: pieces of work that run at once; up to `spare` more may wait for
    other processes. waiting_max: pieces of work that wait at once, and one more for each client without any; None: the
    caller bounds their number. niceness: niceness of the threads, relative to the process. Work must not raise."""

    def __init__(
        self, name: str, slots: int, waiting_max: int | None = None, *, spare: int = 0, niceness: int = 0
    ) -> None:
        self._name = name
        self._slots = slots
        self._threads_max = slots + spare
        self._waiting_max = waiting_max
        self._niceness = niceness
        self._lock = threading.Lock()  # Guards all below.
        self._work = threading.Condition(self._lock)  # Idle threads wait for work with a slot; one is woken for each.
        self._freed = threading.Condition(self._lock)  # Work that lent its slot waits for one.
        # Queues by client; none is empty. The client whose turn it is comes first.
        self._queues: dict[str, deque[Work]] = {}
        self._queued = 0
        self._active: set[_Slot] = set()
        self._held: Counter[str] = Counter()  # Slots in use by client, without zero entries.
        self._held_count = self._returning = self._idle = self._shown = 0
        self._threads: list[threading.Thread] = []
        self._looks = False
        self._started = self._closed = self._ending = self._ended = False

    def start(self) -> None:
        """Start to work. Earlier work is in the queue."""
        with self._lock:
            self._started = True
            for _ in range(self._slots):
                self._add_thread_locked()

    def close(self) -> None:
        """Refuse further work of pools with a bound; what is queued goes on."""
        self._closed = True

    def join(self, timeout_s: float) -> bool:
        """Finish the queued work and end the threads."""
        deadline = Deadline.after(timeout_s)
        with self._lock:
            self._ending = True
            self._work.notify_all()
            threads = list(self._threads)
        for thread in threads:
            thread.join(deadline.remaining())
        if any(thread.is_alive() for thread in threads):
            return False
        self._ended = True
        self._run_rest()
        return True

    def submit(self, work: Work, client: str = "") -> None:
        """Run the work on a thread, after `join` on the caller's thread. Raises Overloaded (query_queue), Unavailable
        (draining)."""
        with self._lock:
            if self._waiting_max is not None:
                self._check_capacity_locked(client, self._waiting_max)
            self._queues.setdefault(client, deque()).append(work)
            self._queued += 1
            self._show_locked()
            self._call_thread_locked()
        if self._ended:  # The last answers are still sent.
            self._run_rest()

    def take_back(self, slot: _Slot) -> None:
        """The wait of a slot's work is over: it needs a slot again."""
        with self._lock:
            slot.waits_since = None
            if not slot.is_lent:
                return
            slot.is_lent = False
            self._returning += 1
            self._freed.wait_for(lambda: self._held_count < self._slots, RETURN_WITHIN_S)
            self._returning -= 1
            self._hold_locked(slot.key, 1)

    def _check_capacity_locked(self, client: str, waiting_max: int) -> None:
        waiting = self._waiting_locked()
        error: TsdbError | None = None
        if self._closed:
            error = Unavailable("the process is ending; ask another replica", reason=DRAINING)
        elif waiting >= waiting_max and (self._is_known_locked(client) or waiting > 2 * waiting_max):
            error = Overloaded(
                f"{len(self._active)} queries run and {max(0, waiting)} wait; the limit is {waiting_max} waiting",
                reason=QUERY_QUEUE,
                retry_after_s=RETRY_AFTER_S,
                limit=waiting_max,
            )
        if error is not None:
            _refused.labels(error.reason).inc()
            raise error

    def _is_known_locked(self, client: str) -> bool:
        """Whether a client has work here. The first work of another client is accepted beyond the bound."""
        return client in self._queues or client in self._held

    def _call_thread_locked(self) -> None:
        """An idle thread for queued work, or for the search of a slot for it."""
        if self._idle:
            self._work.notify()
        elif self._started and not self._ending and len(self._threads) < self._threads_max:
            self._add_thread_locked()

    def _add_thread_locked(self) -> None:
        thread = new_thread(self._run, f"{self._name}-{len(self._threads)}")
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        if self._niceness and sys.platform == "linux":
            number = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, number, os.getpriority(os.PRIO_PROCESS, number) + self._niceness)
        slot = _Slot(self)
        bind_waits(slot)
        while (work := self._next(slot)) is not None:
            self._do(work)
            del work  # Without this the thread would keep it in memory until the next piece comes.

    def _next(self, slot: _Slot) -> Work | None:
        """The next piece of work, as soon as a slot is free; None at the end. slot: that of the thread, which leaves
        its last work."""
        with self._lock:
            if slot in self._active:
                self._leave_locked(slot)
            while True:
                client = self._turn_locked()
                if client is not None:
                    return self._take_locked(client, slot)
                if self._ending and not self._queued:
                    return None
                # One idle thread looks for waits of others, while there is work for their slots.
                looks = self._queued > 0 and not self._looks
                self._looks |= looks
                self._idle += 1
                self._work.wait(LOOK_EVERY_S if looks else None)
                self._idle -= 1
                if looks:
                    self._looks = False

    def _turn_locked(self) -> str | None:
        """The client whose work is next; None when there is no slot for it."""
        if not self._queues:
            return None
        now = time.monotonic()
        for slot in self._active:
            if not slot.is_lent and slot.waits_since is not None and now - slot.waits_since >= LEND_AFTER_S:
                slot.is_lent = True
                self._hold_locked(slot.key, -1)
                _lent.inc()
        client = next(iter(self._queues))
        if len(self._queues) > 1:
            client = min(self._queues, key=lambda one: self._held[one])
        # One client holds all slots: another one gets a slot beyond them.
        alone = len(self._held) == 1 and client not in self._held
        return client if self._held_count + self._returning < self._slots + alone else None

    def _take_locked(self, client: str, slot: _Slot) -> Work:
        queue = self._queues.pop(client)
        work = queue.popleft()
        if queue:
            # Appended at the end, so that clients with the same number of slots take turns.
            self._queues[client] = queue
        self._queued -= 1
        if self._queued:
            self._call_thread_locked()
        slot.key = client
        self._active.add(slot)
        self._hold_locked(client, 1)
        return work

    def _leave_locked(self, slot: _Slot) -> None:
        """The thread of the slot takes the next piece itself, so that no other one needs to wake up for it."""
        self._active.remove(slot)
        self._hold_locked(slot.key, -1)
        if self._ending:
            self._work.notify_all()

    def _hold_locked(self, client: str, by: int) -> None:
        self._held_count += by
        self._held[client] += by
        if not self._held[client]:
            del self._held[client]
        self._show_locked()
        if by < 0 and self._returning:
            self._freed.notify()

    def _waiting_locked(self) -> int:
        """Number of queued pieces of work without a slot; below 0: number of free slots."""
        return self._queued - max(0, self._slots - self._held_count)

    def _show_locked(self) -> None:
        if self._waiting_max is not None:
            # Written out for the usual case, in which nothing waits: this runs three times a request.
            waiting = max(0, self._waiting_locked()) if self._queued else 0
            before, self._shown = self._shown, waiting
            if waiting != before:
                _waiting.inc(self._shown - before)

    def _run_rest(self) -> None:
        slot = _Slot(self)
        while True:
            with self._lock:
                if not self._queues:
                    return
                work = self._take_locked(next(iter(self._queues)), slot)
            self._do(work)
            with self._lock:
                self._leave_locked(slot)

    def _do(self, work: Work) -> None:
        try:
            work()
        except Exception as error:
            log.error("work of a request failed", exc_info=error)

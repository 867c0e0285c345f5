"""Throttle: whether a record may begin now, according to Control. Called by the consumer's thread only.

A record passes the quota of its key, the rate of its partition and that of the consumer, in this order; it waits at the
first one used up, behind earlier records. A waiting record uses nothing of the limits behind it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Hashable
from enum import Enum

from tsdb.parallel_consumer.control import STOPPED, UNLIMITED, Control
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.task import Task

KEYS_SWEPT_FROM = 10_000  # Idle key quotas are removed in sweeps, not one by one.
STAGES = ("key_quota", "partition_rate", "rate")


class ThrottleDecision(Enum):
    """Decision about one record."""

    PASS = "pass"
    WAIT = "wait"  # `release` returns it later.
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"
    DIVERT = "divert"


class _Gate:
    """One limit and the tasks that wait for it."""

    __slots__ = ("limit", "waiting")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.waiting: deque[Task] = deque()


class Throttle:
    """`active`: whether any record needs `decide`. `control`: the Control in effect."""

    def __init__(self, control: Control, concurrency: int, metrics: ConsumerMetrics) -> None:
        self._concurrency = concurrency
        self._metrics = metrics
        self._next: Control | None = None
        self._waiting: dict[Task, None] = {}
        self._numbers = itertools.count()
        self._take(control)

    def _take(self, control: Control) -> None:
        self.control = control
        self.active = control.limits
        self.slots = control.slots or self._concurrency
        self._breaker = Breaker(control.breaker_failures, control.breaker_open_s, control.breaker_open_s_max)
        self._gates: dict[Hashable, _Gate] = {}
        self._due: list[tuple[float, int, Hashable]] = []

    def change(self, control: Control) -> None:
        """The new control takes effect at the next step. Any thread may call it."""
        self._next = control

    def changed(self) -> list[Task] | None:
        """Apply a pending change; returns all waiting tasks in order of arrival, to be decided again."""
        control, self._next = self._next, None
        if control is None:
            return None
        waiting, self._waiting = list(self._waiting), {}
        for task in waiting:
            task.stage = 0
        self._take(control)
        return waiting

    @property
    def unrestricted(self) -> bool:
        """Whether no limit, pause or breaker applies."""
        return not (self.active or self.control.paused or self._breaker.opens_in_s(0.0) is not None)

    def allowed(self, now: float) -> float:
        """Number of tasks of any kind that may begin now; inf: any number."""
        return 0 if self.control.paused else self._breaker.allowed(now)

    def began(self, now: float) -> None:
        self._breaker.began(now)

    def succeeded(self) -> None:
        self._breaker.succeeded()
        self._metrics.breaker_open.set(self._breaker.opens_in_s(0.0) is not None)

    def failed(self, now: float) -> float | None:
        """A task failed in a way that could affect all. Returns seconds without new work if this opens the breaker."""
        opened = self._breaker.opened
        self._breaker.failed(now)
        opened = self._breaker.opened - opened
        self._metrics.breaker_opened.inc(opened)
        self._metrics.breaker_open.set(self._breaker.opens_in_s(0.0) is not None)
        return self._breaker.opens_in_s(now) if opened else None

    def decide(self, task: Task, now: float) -> ThrottleDecision:
        """Decide whether the task may begin, and take its share of the limits."""
        control = self.control
        if task.stage == 0 and task.block is None and task.record.key in control.blocked_keys:
            self._metrics.limited.labels("blocked_key").inc()
            return ThrottleDecision.SKIP if control.skip_blocked else ThrottleDecision.DEAD_LETTER
        while task.stage < len(STAGES):
            name = self._name(task)
            if name is not None and not self._pass(name, task, now):
                if task.stage == 0 and control.over_quota_topic:
                    self._metrics.limited.labels("diverted").inc()
                    return ThrottleDecision.DIVERT
                self._hold(name, task, now)
                return ThrottleDecision.WAIT
            task.stage += 1
        return ThrottleDecision.PASS

    def diverted(self, record: Record) -> OutRecord:
        """The record to send in place of one that is above its quota."""
        topic = self.control.over_quota_topic
        return OutRecord(topic, record.partition, record.key, record.value, record.headers)

    def release(self, now: float) -> list[Task]:
        """Waiting tasks that may begin now."""
        released: list[Task] = []
        while self._due and self._due[0][0] <= now:
            _, _, name = heapq.heappop(self._due)
            gate = self._gates[name]
            while gate.waiting and gate.limit.opens_in_s(now) <= 0:
                task = gate.waiting.popleft()
                del self._waiting[task]
                gate.limit.take(task.count, now)
                task.stage += 1
                if self.decide(task, now) is ThrottleDecision.PASS:
                    released.append(task)
            self._wait_for(name, gate, now)
        return released

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        self._waiting = {task: None for task in self._waiting if not task.owner.closed}
        for gate in self._gates.values():
            gate.waiting = deque(task for task in gate.waiting if not task.owner.closed)

    def due_in_s(self, now: float) -> float | None:
        """Seconds until `release` or a probe has something; None: nothing ever will by itself."""
        dues = [self._due[0][0] - now] if self._due else []
        opens_in_s = self._breaker.opens_in_s(now)
        if opens_in_s and not self.control.paused:
            dues.append(opens_in_s)
        return max(0.0, min(dues)) if dues else None

    def _name(self, task: Task) -> Hashable:
        """Key of the limit at the task's stage; None when no limit applies."""
        control, record = self.control, task.record
        if task.stage == 0:
            keyed = record.key is not None and task.block is None
            limited = keyed and (control.key_quota >= 0 or record.key in control.key_quotas)
            return record.key if limited else None
        if task.stage == 1:
            limited = control.partition_rate >= 0 or record.topic_partition in control.paused_partitions
            return record.topic_partition if limited else None
        return "" if control.rate >= 0 else None

    def _pass(self, name: Hashable, task: Task, now: float) -> bool:
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = _Gate(self._limit(task))
            if len(self._gates) >= KEYS_SWEPT_FROM:
                self._sweep(now, name)
        if gate.waiting or gate.limit.opens_in_s(now) > 0:
            return False
        gate.limit.take(task.count, now)
        return True

    def _limit(self, task: Task) -> Limit:
        control, record = self.control, task.record
        if task.stage == 0:
            assert record.key is not None, "a quota of no key"
            return Limit(control.key_quotas.get(record.key, control.key_quota), control.quota_burst_s)
        if task.stage == 1:
            return Limit(STOPPED if record.topic_partition in control.paused_partitions else control.partition_rate)
        return Limit(control.rate)

    def _hold(self, name: Hashable, task: Task, now: float) -> None:
        gate = self._gates[name]
        gate.waiting.append(task)
        self._waiting[task] = None
        self._metrics.limited.labels(STAGES[task.stage]).inc()
        if len(gate.waiting) == 1:
            self._wait_for(name, gate, now)

    def _wait_for(self, name: Hashable, gate: _Gate, now: float) -> None:
        delay_s = gate.limit.opens_in_s(now)
        if gate.waiting and delay_s < math.inf:
            heapq.heappush(self._due, (now + delay_s, next(self._numbers), name))

    def _sweep(self, now: float, keep: Hashable) -> None:
        used = {
            name: gate for name, gate in self._gates.items() if name == keep or gate.waiting or not gate.limit.idle(now)
        }
        self._gates = used


class Limit:
    """Bounds the rate of records per second, exact over any interval.

    It keeps one number: the time at which this rate would have passed the records taken so far (a virtual schedule, as
    in GCRA). rate: records per second; -1 means unlimited, 0 none. burst_s: seconds of unused rate that may be used
    later.
    """

    __slots__ = ("_burst_s", "_rate", "_used_until")

    def __init__(self, rate: float, burst_s: float = 0.0) -> None:
        self._rate = rate
        self._burst_s = burst_s
        self._used_until = -math.inf

    def opens_in_s(self, now: float) -> float:
        """Seconds until one more record may begin. 0 means now, inf means never."""
        if self._rate == UNLIMITED:
            return 0.0
        if self._rate == 0:
            return math.inf
        return max(0.0, self._used_until - now)

    def take(self, count: int, now: float) -> None:
        """`count` records begin now."""
        if self._rate > 0:
            # After a pause at most the burst may follow at once.
            self._used_until = max(self._used_until, now - self._burst_s) + count / self._rate

    def idle(self, now: float) -> bool:
        """Whether the limit behaves like a new one."""
        return self._used_until <= now - self._burst_s


class BreakerState(Enum):
    CLOSED = "closed"  # All records may begin.
    OPEN = "open"  # No record may begin.
    PROBING = "probing"  # One task may run; its result decides.


class Breaker:
    """Begins no record while all fail, then tries a single record.

    CLOSED -(failures in a row)-> OPEN -(its time is over)-> PROBING -(success)-> CLOSED, -(failure)-> OPEN, twice as
    long. failures: number in a row that opens it; with 0 it never opens. `opened`: how often it opened.
    """

    def __init__(self, failures: int, open_s: float, open_s_max: float) -> None:
        self._limit = failures
        self._first_s = open_s
        self._longest_s = open_s_max
        self._open_s = open_s
        self._in_row = 0
        self._opens_at = 0.0  # Time at which the next probe may begin.
        self.state = BreakerState.CLOSED
        self.opened = 0

    def allowed(self, now: float) -> float:
        """How many more records may begin now: all (inf), one or none."""
        if self.state is BreakerState.CLOSED:
            return math.inf
        # A probe of a removed partition never reports a result, so after the same time another one may begin.
        return 1 if now >= self._opens_at else 0

    def opens_in_s(self, now: float) -> float | None:
        """Seconds until a probe may begin; None: it is closed."""
        return None if self.state is BreakerState.CLOSED else max(0.0, self._opens_at - now)

    def began(self, now: float) -> None:
        if self.state is not BreakerState.CLOSED:
            self.state = BreakerState.PROBING
            self._opens_at = now + self._open_s

    def succeeded(self) -> None:
        self._in_row = 0
        if self.state is BreakerState.PROBING:
            self.state = BreakerState.CLOSED
            self._open_s = self._first_s

    def failed(self, now: float) -> None:
        """A record failed in a way that could affect all."""
        self._in_row += 1
        if self.state is BreakerState.PROBING:
            self._open_s = min(self._open_s * 2, self._longest_s)
            self._open(now)
        elif self.state is BreakerState.CLOSED and 0 < self._limit <= self._in_row:
            self._open(now)

    def _open(self, now: float) -> None:
        self.state = BreakerState.OPEN
        self.opened += 1
        self._opens_at = now + self._open_s

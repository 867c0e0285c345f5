"""Throttle: whether a record may begin now, as Control has it. The consumer's thread alone asks.

A record passes the quota of its key, the rate of its partition and that of the consumer, in this order; it waits at the
first that is used up, behind those that came before. What waits has taken nothing from those behind.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Hashable
from enum import Enum

from tsdb.parallel_consumer.breaker import Breaker
from tsdb.parallel_consumer.control import STOPPED, Control
from tsdb.parallel_consumer.limits import Limit
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.outlet import OutRecord
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.work import Work

KEYS_SWEPT_FROM = 10_000  # Quotas of keys that are idle are forgotten in rounds, not one by one.
STAGES = ("key_quota", "partition_rate", "rate")


class Verdict(Enum):
    """What a record is told."""

    PASS = "pass"
    WAIT = "wait"  # Given back by `release` later on.
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"
    DIVERT = "divert"


class _Gate:
    """One limit and who waits for it."""

    __slots__ = ("limit", "waiting")

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.waiting: deque[Work] = deque()


class Throttle:
    """`active`: whether any record has to be asked for. `control`: as in effect."""

    def __init__(self, control: Control, concurrency: int, metrics: ConsumerMetrics) -> None:
        self._concurrency = concurrency
        self._metrics = metrics
        self._next: Control | None = None
        self._held: dict[Work, None] = {}
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
        """Takes effect at the next step; from any thread."""
        self._next = control

    def changed(self) -> list[Work] | None:
        """Take a change if there is one: all that waited, in the order it came, to be asked for anew."""
        control, self._next = self._next, None
        if control is None:
            return None
        held, self._held = list(self._held), {}
        for work in held:
            work.stage = 0
        self._take(control)
        return held

    @property
    def straight(self) -> bool:
        """Whether there is nothing to ask at all."""
        return not (self.active or self.control.paused or self._breaker.opens_in_s(0.0) is not None)

    def allowed(self, now: float) -> float:
        """How many may begin now, whatever they are; inf: any number."""
        return 0 if self.control.paused else self._breaker.allowed(now)

    def began(self, now: float) -> None:
        """Something was begun."""
        self._breaker.began(now)

    def succeeded(self) -> None:
        """Something begun was done."""
        self._breaker.succeeded()
        self._metrics.breaker_open.set(self._breaker.opens_in_s(0.0) is not None)

    def failed(self, now: float) -> float | None:
        """Something begun failed in a way that may befall all. Seconds without new work, if that opens the breaker."""
        opened = self._breaker.opened
        self._breaker.failed(now)
        opened = self._breaker.opened - opened
        self._metrics.breaker_opened.inc(opened)
        self._metrics.breaker_open.set(self._breaker.opens_in_s(0.0) is not None)
        return self._breaker.opens_in_s(now) if opened else None

    def ask(self, work: Work, now: float) -> Verdict:
        """Whether it may begin; what it needs for that is taken."""
        control = self.control
        if work.stage == 0 and work.block is None and work.record.key in control.blocked_keys:
            self._metrics.limited.labels("blocked_key").inc()
            return Verdict.SKIP if control.skip_blocked else Verdict.DEAD_LETTER
        while work.stage < len(STAGES):
            name = self._name(work)
            if name is not None and not self._pass(name, work, now):
                if work.stage == 0 and control.over_quota_topic:
                    self._metrics.limited.labels("diverted").inc()
                    return Verdict.DIVERT
                self._hold(name, work, now)
                return Verdict.WAIT
            work.stage += 1
        return Verdict.PASS

    def diverted(self, record: Record) -> OutRecord:
        """What is sent in the place of one that is above its quota."""
        topic = self.control.over_quota_topic
        return OutRecord(topic, record.partition, record.key, record.value, record.headers)

    def release(self, now: float) -> list[Work]:
        """What waited and may begin now."""
        released: list[Work] = []
        while self._due and self._due[0][0] <= now:
            _, _, name = heapq.heappop(self._due)
            gate = self._gates[name]
            while gate.waiting and gate.limit.opens_in_s(now) <= 0:
                work = gate.waiting.popleft()
                del self._held[work]
                gate.limit.take(work.count, now)
                work.stage += 1
                if self.ask(work, now) is Verdict.PASS:
                    released.append(work)
            self._wait_for(name, gate, now)
        return released

    def drop_closed(self) -> None:
        """Forget what belongs to partitions that have gone."""
        self._held = {work: None for work in self._held if not work.owner.closed}
        for gate in self._gates.values():
            gate.waiting = deque(work for work in gate.waiting if not work.owner.closed)

    def due_in_s(self, now: float) -> float | None:
        """Seconds until `release` or a probe has something; None: nothing ever will by itself."""
        dues = [self._due[0][0] - now] if self._due else []
        opens_in_s = self._breaker.opens_in_s(now)
        if opens_in_s and not self.control.paused:
            dues.append(opens_in_s)
        return max(0.0, min(dues)) if dues else None

    def _name(self, work: Work) -> Hashable:
        """Of the gate of its stage; None: there is none."""
        control, record = self.control, work.record
        if work.stage == 0:
            keyed = record.key is not None and work.block is None
            limited = keyed and (control.key_quota >= 0 or record.key in control.key_quotas)
            return record.key if limited else None
        if work.stage == 1:
            limited = control.partition_rate >= 0 or record.place in control.paused_partitions
            return record.place if limited else None
        return "" if control.rate >= 0 else None

    def _pass(self, name: Hashable, work: Work, now: float) -> bool:
        gate = self._gates.get(name)
        if gate is None:
            gate = self._gates[name] = _Gate(self._limit(work))
            if len(self._gates) >= KEYS_SWEPT_FROM:
                self._sweep(now, name)
        if gate.waiting or gate.limit.opens_in_s(now) > 0:
            return False
        gate.limit.take(work.count, now)
        return True

    def _limit(self, work: Work) -> Limit:
        control, record = self.control, work.record
        if work.stage == 0:
            assert record.key is not None, "a quota of no key"
            return Limit(control.key_quotas.get(record.key, control.key_quota), control.quota_burst_s)
        if work.stage == 1:
            return Limit(STOPPED if record.place in control.paused_partitions else control.partition_rate)
        return Limit(control.rate)

    def _hold(self, name: Hashable, work: Work, now: float) -> None:
        gate = self._gates[name]
        gate.waiting.append(work)
        self._held[work] = None
        self._metrics.limited.labels(STAGES[work.stage]).inc()
        if len(gate.waiting) == 1:
            self._wait_for(name, gate, now)

    def _wait_for(self, name: Hashable, gate: _Gate, now: float) -> None:
        delay_s = gate.limit.opens_in_s(now)
        if gate.waiting and delay_s < math.inf:
            heapq.heappush(self._due, (now + delay_s, next(self._numbers), name))

    def _sweep(self, now: float, but: Hashable) -> None:
        kept = {
            name: gate for name, gate in self._gates.items() if name == but or gate.waiting or not gate.limit.idle(now)
        }
        self._gates = kept

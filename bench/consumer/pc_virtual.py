"""Long calls on a virtual clock: the real core over a broker in memory, with calls that only take virtual time."""

from __future__ import annotations

import heapq
import itertools
import random

from prometheus_client import CollectorRegistry

from bench.consumer.pc_ground import POLICY
from tsdb.parallel_consumer import ConsumerMetrics, Options, Record, by_key
from tsdb.parallel_consumer.core import Core
from tsdb.parallel_consumer.scheduling.completion import Completion, ThreadMailbox
from tsdb.parallel_consumer.setup import Setup
from tsdb.parallel_consumer.testing import MemoryBroker, MemorySource, VirtualClock

SLOTS = 200
COUNT = 40_000
MEAN_S, LONGEST_S = 0.8, 20.0
LONG_S, LONG_EVERY = 60.0, 100
PER_S = 200


def virtual_rates() -> dict[str, float]:
    """Calls a second with SLOTS in flight, one of LONG_EVERY taking LONG_S: batch loop, ours, limit of the slots."""
    durations = _durations(COUNT, LONG_EVERY)
    batches = [durations[at : at + SLOTS] for at in range(0, COUNT, SLOTS)]
    return {
        "batch": round(COUNT / sum(max(batch) for batch in batches), 1),
        "ours": round(_ours(durations), 1),
        "allowed": round(SLOTS / (sum(durations) / COUNT), 1),
    }


def slots_needed() -> dict[str, int]:
    """Slots that PER_S calls a second keep busy: the mean number of calls running, with unlimited slots."""
    healthy, long = _durations(COUNT, 0), _durations(COUNT, LONG_EVERY)
    return {
        "healthy": round(PER_S * sum(healthy) / COUNT),
        f"one of {LONG_EVERY} of {LONG_S:.0f} s": round(PER_S * sum(long) / COUNT),
    }


def _durations(count: int, long_every: int) -> list[float]:
    source = random.Random(1)
    usual = [min(LONGEST_S, source.expovariate(1 / MEAN_S)) for _ in range(count)]
    long = [LONG_S] * (count // long_every if long_every else 0)
    durations = long + usual[len(long) :]
    source.shuffle(durations)
    return durations


class _Calls:
    """Executor and mailbox. A call ends when the clock reaches its end; a wait moves the clock."""

    def __init__(self, clock: VirtualClock, durations: list[float]) -> None:
        self._clock = clock
        self._durations = durations
        self._numbers = itertools.count()
        self._running: list[tuple[float, int, Completion]] = []
        self.mailbox = ThreadMailbox()
        self.begun = self.ended = 0

    def start(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """There is no thread."""

    def submit(self, record: Record, done: Completion) -> None:
        ends_at = self._clock.monotonic() + self._durations[int(record.value or b"")]
        self.begun += 1
        heapq.heappush(self._running, (ends_at, next(self._numbers), done))

    def pass_time(self, timeout_s: float) -> None:
        """Advance the clock to the next end of a call, by timeout_s at most."""
        now = self._clock.monotonic()
        until = min(now + max(timeout_s, 1e-4), self._running[0][0] if self._running else now + timeout_s)
        self._clock.advance(max(until - now, 0.0))
        while self._running and self._running[0][0] <= until:
            heapq.heappop(self._running)[2](None)
            self.ended += 1


class _Mailbox(ThreadMailbox):
    """A mailbox whose waits move the clock and do not sleep."""

    def __init__(self, calls: _Calls) -> None:
        super().__init__()
        self._calls = calls

    def wait(self, timeout_s: float) -> None:
        self._calls.pass_time(timeout_s)


def _ours(durations: list[float]) -> float:
    """Calls a virtual second, from the end of the first long calls until the last call has begun."""
    clock, broker = VirtualClock(), MemoryBroker(4, "events")
    for number in range(len(durations)):
        broker.append("events", number % 4, b"%d" % number, key=b"%d" % number)
    calls = _Calls(clock, durations)
    source = MemorySource(broker)
    source.on_idle = calls.pass_time
    setup = Setup(
        metrics=ConsumerMetrics(CollectorRegistry()),
        clock=clock,
        order=by_key,
        policy=POLICY,
        options=Options(concurrency=SLOTS),
    )
    core = Core(source, calls, _Mailbox(calls), setup)
    source.start(core)
    while clock.monotonic() < LONG_S:
        core.step(1.0)
    ended, since_s = calls.ended, clock.monotonic()
    while calls.begun < len(durations):
        core.step(1.0)
    return (calls.ended - ended) / (clock.monotonic() - since_s)

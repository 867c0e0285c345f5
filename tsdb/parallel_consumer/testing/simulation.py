"""Simulation: a core with a seeded scheduler. At each wait the scheduler chooses: a running record ends, or time
passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.core import Core
from tsdb.parallel_consumer.executors.batch_executors import complete_block
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.scheduling.completion import Completion, Outcome
from tsdb.parallel_consumer.scheduling.streaks import Streak
from tsdb.parallel_consumer.setup import Setup
from tsdb.parallel_consumer.testing.memory import MemoryBroker, MemorySource

STEPS_MAX = 10_000  # Bounds a simulation that does not end.


class VirtualClock:
    """A clock that moves only by `advance`; wall clock and monotonic clock move together."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds


class SeededScheduler:
    """Executor and mailbox of a simulated core. A handler runs at the moment at which its record ends, and has no
    effect before.

    `running`: records that have begun and not ended, in the order of their begin. `started`, `ended`: all records so
    far. ends_share: probability that a wait ends a record instead of advancing time.

    """

    def __init__(
        self, handler: Callable[[Record], object], clock: VirtualClock, source: random.Random, ends_share: float
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._random = source
        self._ends_share = ends_share
        self._ended: list[Outcome] = []
        self.running: list[tuple[Record, Completion]] = []
        self.started: list[Record] = []
        self.ended: list[Record] = []

    def start(self) -> None:
        """Has no effect: there is no thread to start."""

    def close(self) -> None:
        """Has no effect: there is no thread to end."""

    def submit(self, record: Record, done: Completion) -> None:
        self.running.append((record, done))
        self.started.append(record)

    def put(self, completion: Completion, error: BaseException | None) -> None:
        self._ended.append((completion, error))

    put_quietly = put

    def wake(self) -> None:
        """Does nothing: a simulation has no thread to wake."""

    def take(self) -> list[Outcome]:
        taken, self._ended = self._ended, []
        return taken

    def wait(self, timeout_s: float) -> None:
        if self.running and self._random.random() < self._ends_share:
            self.end(self._random.randrange(len(self.running)))
        else:
            self._clock.advance(max(timeout_s, 1e-4))

    def forget(self) -> None:
        """Drop the running records, which then never end."""
        self.running.clear()

    def end(self, index: int) -> None:
        """Run the handler of a running record."""
        record, done = self.running.pop(index)
        self.ended.append(record)
        try:
            self._handler(record)
        except Exception as error:
            done(error)
        else:
            done(None)


class SeededStreaks(SeededScheduler):
    """A scheduler that runs streaks by itself. It is sometimes several records ahead of the completions that the
    consumer sees, and sometimes late to begin a queued streak."""

    def __init__(
        self, handler: Callable[[Record], object], clock: VirtualClock, source: random.Random, ends_share: float
    ) -> None:
        super().__init__(handler, clock, source, ends_share)
        self._queued: list[Streak] = []
        self._taken: dict[Completion, Streak] = {}

    def submit_streak(self, streak: Streak) -> None:
        """Queue the streak; it begins at a later wait."""
        self._queued.append(streak)

    def wait(self, timeout_s: float) -> None:
        if self._queued and self._random.random() < self._ends_share:
            self._take(self._queued.pop(self._random.randrange(len(self._queued))))
            return
        super().wait(timeout_s)
        while self.running and self._random.random() < self._ends_share / 2:
            self.end(self._random.randrange(len(self.running)))

    def forget(self) -> None:
        super().forget()
        self._queued.clear()

    def end(self, index: int) -> None:
        _, completion = self.running[index]
        super().end(index)
        streak = self._taken.pop(completion, None)
        if streak is not None and self._ended[-1] == (completion, None):
            if self._random.random() < self._ends_share:
                self._take(streak)
            else:
                self._queued.append(streak)

    def _take(self, streak: Streak) -> None:
        completion = streak.take()
        if completion is not None:
            self._taken[completion] = streak
            self.submit(completion.task.record, completion)


class SeededColumns(SeededScheduler):
    """A scheduler for a handler of columns; `started` and `ended` have every row."""

    def __init__(
        self, handler: Callable[[Any], object], clock: VirtualClock, source: random.Random, ends_share: float
    ) -> None:
        super().__init__(handler, clock, source, ends_share)
        self.blocks: list[tuple[RecordColumns, Completion]] = []

    def submit(self, record: Record, done: Completion) -> None:
        self.submit_columns(RecordColumns.of([record]), done)

    def submit_columns(self, columns: RecordColumns, done: Completion) -> None:
        self.blocks.append((columns, done))
        self.running.append((columns.record(0), done))
        self.started += [columns.record(row) for row in range(len(columns))]

    def forget(self) -> None:
        super().forget()
        self.blocks.clear()

    def end(self, index: int) -> None:
        self.running.pop(index)
        columns, done = self.blocks.pop(index)
        self.ended += [columns.record(row) for row in range(len(columns))]
        try:
            results: object = self._handler(columns)  # type: ignore[arg-type]  # of columns, not of a record
        except Exception as error:
            results = error
        complete_block([done], len(columns), results)


class Simulation:
    """One consumer on a broker in memory. `options`: options of Setup. The same seed gives the same run.

    handler: takes a record, or RecordColumns with `scheduler=SeededColumns`.

    """

    def __init__(
        self,
        broker: MemoryBroker,
        handler: Callable[[Any], object],
        seed: int,
        *,
        clock: VirtualClock | None = None,
        ends_share: float = 0.9,
        scheduler: type[SeededScheduler] = SeededScheduler,
        **options: Any,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.registry = CollectorRegistry()
        self.source = MemorySource(broker)
        source = random.Random(seed)
        self.scheduler = scheduler(handler, self.clock, source, ends_share)
        setup = Setup(metrics=ConsumerMetrics(self.registry), clock=self.clock, randomness=source, **options)
        self.core = Core(self.source, self.scheduler, self.scheduler, setup)
        self._broker = broker
        self.source.on_idle = self.scheduler.wait
        self.source.start(self.core)

    def step(self, count: int = 1, *, wait_s: float = 0.05) -> None:
        """Run `count` steps of the core."""
        for _ in range(count):
            self.core.step(wait_s)

    def run_until(self, done: Callable[[], bool], *, wait_s: float = 0.05, steps_max: int = STEPS_MAX) -> None:
        """Step until done() holds. Raises AssertionError after steps_max steps, and the error that
        ended the consumer.
        """
        for _ in range(steps_max):
            if done():
                return
            if self.core.failure is not None:
                raise self.core.failure
            self.core.step(wait_s)
        raise AssertionError(f"not after {steps_max} steps; {self.core.status}")

    def kill(self) -> None:
        """Crash the process: running handlers have no effect, and nothing more is committed."""
        self.scheduler.forget()
        self._broker.kill(self.source)

    def close(self) -> None:
        """Drain, then leave the group."""
        self.core.drain()
        self.source.close()

    def counted(self, name: str, **labels: str) -> float:
        """Value of a counter or gauge of the consumer."""
        return self.registry.get_sample_value(f"parallel_consumer_{name}", labels) or 0.0

"""Simulation: a core whose every interleaving comes from a seed. Whoever waits lets the scheduler choose: a running
record ends, or time passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from tsdb.parallel_consumer.core import Core
from tsdb.parallel_consumer.executors import Done
from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.record import Record
from tsdb.parallel_consumer.testing.memory import MemoryBroker, MemorySource
from tsdb.parallel_consumer.work import Completion, Work

STEPS_MAX = 10_000  # Bounds a simulation that does not end.


class VirtualClock:
    """Time that passes only when told; both clocks move together."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._elapsed_s += seconds


class SeededScheduler:
    """Executor and mailbox of a simulated core. A handler runs when its record ends: until then nothing has happened.

    `running`: begun and not ended, in the order begun. `begun`, `ended`: all there ever were. ends_share: how likely a
    wait ends a record instead of time passing.
    """

    def __init__(
        self, handler: Callable[[Record], object], clock: VirtualClock, source: random.Random, ends_share: float
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._random = source
        self._ends_share = ends_share
        self._completions: list[Completion] = []
        self.running: list[tuple[Record, Done]] = []
        self.begun: list[Record] = []
        self.ended: list[Record] = []

    def start(self) -> None:
        """There is no thread."""

    def close(self) -> None:
        """There is no thread."""

    def submit(self, record: Record, done: Done) -> None:
        self.running.append((record, done))
        self.begun.append(record)

    def put(self, work: Work, run: int, error: BaseException | None) -> None:
        self._completions.append(Completion(work, run, error))

    def wake(self) -> None:
        """Nobody sleeps."""

    def take(self) -> list[Completion]:
        taken, self._completions = self._completions, []
        return taken

    def wait(self, timeout_s: float) -> None:
        if self.running and self._random.random() < self._ends_share:
            self.end(self._random.randrange(len(self.running)))
        else:
            self._clock.advance(max(timeout_s, 1e-4))

    def end(self, index: int) -> None:
        """Run the handler of one that is running."""
        record, done = self.running.pop(index)
        self.ended.append(record)
        try:
            self._handler(record)
        except Exception as error:
            done(error)
        else:
            done(None)


class Simulation:
    """One consumer on a broker in memory. `options`: of Core. The same seed gives the same run."""

    def __init__(
        self,
        broker: MemoryBroker,
        handler: Callable[[Record], object],
        seed: int,
        *,
        clock: VirtualClock | None = None,
        ends_share: float = 0.9,
        **options: Any,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.registry = CollectorRegistry()
        self.source = MemorySource(broker)
        source = random.Random(seed)
        self.scheduler = SeededScheduler(handler, self.clock, source, ends_share)
        self.core = Core(
            self.source,
            self.scheduler,
            self.scheduler,
            metrics=ConsumerMetrics(self.registry),
            clock=self.clock,
            randomness=source,
            **options,
        )
        self._broker = broker
        self.source.on_idle = self.scheduler.wait
        self.source.start(self.core)

    def step(self, count: int = 1, *, wait_s: float = 0.05) -> None:
        """So many steps of the core."""
        for _ in range(count):
            self.core.step(wait_s)

    def run_until(self, done: Callable[[], bool], *, wait_s: float = 0.05, steps_max: int = STEPS_MAX) -> None:
        """Step until it holds. Raises AssertionError after steps_max steps, and what ended the consumer."""
        for _ in range(steps_max):
            if done():
                return
            if self.core.failure is not None:
                raise self.core.failure
            self.core.step(wait_s)
        raise AssertionError(f"not after {steps_max} steps; {self.core.status}")

    def kill(self) -> None:
        """The process is gone: what runs has not happened, nothing is committed any more."""
        self.scheduler.running.clear()
        self._broker.kill(self.source)

    def close(self) -> None:
        """Drain and leave."""
        self.core.drain()
        self.source.close()

    def counted(self, name: str, **labels: str) -> float:
        """A counter or gauge of the consumer."""
        return self.registry.get_sample_value(f"parallel_consumer_{name}", labels) or 0.0

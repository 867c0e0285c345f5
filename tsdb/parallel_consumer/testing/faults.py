"""Faults of a broker in memory, at virtual times. The same script gives the same run."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from typing import Self

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.testing.memory import MemoryBroker, MemorySource

Fault = Callable[[MemoryBroker], None]


class FaultScript:
    """Faults by time, in seconds of the clock from now; each takes effect in the first poll at or after it.

    FaultScript(broker, clock).at(1.0, lost(member)).during(2.0, 5.0, broker_away).at(6.0, lambda broker: ...)
    """

    def __init__(self, broker: MemoryBroker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._began = clock.monotonic()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Fault]] = []
        broker.on_poll = self._play

    def at(self, second: float, fault: Fault) -> Self:
        """Add one fault at one instant."""
        heapq.heappush(self._due, (self._began + second, next(self._numbers), fault))
        return self

    def during(self, first: float, last: float, fault: Callable[[MemoryBroker, bool], None]) -> Self:
        """Add a state that holds from the first second to the last: fault(broker, whether it holds)."""
        self.at(first, lambda broker: fault(broker, True))
        return self.at(last, lambda broker: fault(broker, False))

    @property
    def over(self) -> bool:
        """Whether all faults have taken effect."""
        return not self._due

    def _play(self) -> None:
        while self._due and self._due[0][0] <= self._clock.monotonic():
            _, _, fault = heapq.heappop(self._due)
            fault(self._broker)


def broker_away(broker: MemoryBroker, holds: bool) -> None:
    """Polls return nothing and commits are not answered."""
    broker.away = holds


def commits_lost(broker: MemoryBroker, holds: bool) -> None:
    """Commits fail and are not stored."""
    broker.commit_fault = lambda partition: "lost" if holds else None


def commits_unacknowledged(broker: MemoryBroker, holds: bool) -> None:
    """Commits are stored, but not acknowledged."""
    broker.commit_fault = lambda partition: "unacknowledged" if holds else None


def lost(member: MemorySource) -> Fault:
    """The group declares the member dead; at its next poll it learns that its partitions are lost, and joins again."""
    return lambda broker: broker.kill(member)


def compacted(topic: str, partition: int) -> Fault:
    """Only the newest record of each key stays."""
    return lambda broker: broker.compact(topic, partition)


def trimmed(topic: str, partition: int, below: int) -> Fault:
    """Offsets below are deleted."""
    return lambda broker: broker.trim(topic, partition, below)

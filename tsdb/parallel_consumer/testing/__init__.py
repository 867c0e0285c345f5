"""Test kit: an in-memory source, a test-controlled clock, scripted faults, and a scheduler that takes every
interleaving from a seed. Works with any pytest suite: docs/parallel-consumer/testing.md.
"""

from tsdb.parallel_consumer.testing.faults import (
    FaultScript,
    broker_away,
    commits_lost,
    commits_unacknowledged,
    compacted,
    lost,
    trimmed,
)
from tsdb.parallel_consumer.testing.memory import MemoryBroker, MemoryProducer, MemorySource, Protocol
from tsdb.parallel_consumer.testing.simulation import (
    SeededColumns,
    SeededScheduler,
    SeededStreaks,
    Simulation,
    VirtualClock,
)

__all__ = [
    "FaultScript",
    "MemoryBroker",
    "MemoryProducer",
    "MemorySource",
    "Protocol",
    "SeededColumns",
    "SeededScheduler",
    "SeededStreaks",
    "Simulation",
    "VirtualClock",
    "broker_away",
    "commits_lost",
    "commits_unacknowledged",
    "compacted",
    "lost",
    "trimmed",
]

"""Test kit: a source in memory, time that a test owns, and a scheduler that decides every interleaving from a seed."""

from tsdb.parallel_consumer.testing.memory import MemoryBroker, MemoryOutlet, MemorySource
from tsdb.parallel_consumer.testing.simulation import Simulation, VirtualClock

__all__ = ["MemoryBroker", "MemoryOutlet", "MemorySource", "Simulation", "VirtualClock"]

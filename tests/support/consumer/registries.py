"""A consumer behind a registry, in virtual time: its source, the wait topic, the dead letters and the scanner."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from tsdb.parallel_consumer import (
    Action,
    Backoff,
    CommitFailed,
    ConsumerMetrics,
    ErrorPolicy,
    OutRecord,
    Position,
    Record,
    SendFailed,
    TopicPartition,
)
from tsdb.parallel_consumer.core import Core
from tsdb.parallel_consumer.producer import OnSent
from tsdb.parallel_consumer.registry import (
    ExpiryScanner,
    RegistryMetrics,
    RegistryOptions,
    RegistrySource,
    read_wait_record,
)
from tsdb.parallel_consumer.setup import Setup
from tsdb.parallel_consumer.testing import MemoryBroker, MemorySource, VirtualClock
from tsdb.parallel_consumer.testing.simulation import SeededScheduler

TOPIC, WAIT, DLQ = "orders", "orders.wait", "orders.dlq"
PARTITIONS = 2
POLICY = ErrorPolicy(
    {ValueError: Action.DEAD_LETTER, KeyError: Action.SKIP, LookupError: Action.REQUEUE},
    attempts_max=2,
    crashes_max=None,
    retry_backoff=Backoff(0.01, 0.01),
    block_backoff=Backoff(0.01, 0.01),
)


class Killed(Exception):
    """The process ends at this point."""


class World:
    """State that outlives processes: topics, time. fault(record): None, or why it is not sent. dead_letters: records
    sent to other topics.
    """

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.random = random.Random(seed)
        self.orders = MemoryBroker(PARTITIONS, TOPIC)
        self.waits = MemoryBroker(PARTITIONS, WAIT)
        self.dead_letters: list[OutRecord] = []
        self.fault: Callable[[OutRecord], str | None] = lambda record: None
        self.held: list[tuple[OutRecord, OnSent]] | None = None  # While it is a list, no record is acknowledged.

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        reason = self.fault(record)
        if reason is not None:
            on_sent(SendFailed("not sent", reason=reason))
        elif self.held is not None:
            self.held.append((record, on_sent))
        else:
            self._store(record)
            on_sent(None)

    def store(self, records: Sequence[OutRecord]) -> None:
        """Append all of them at once."""
        for record in records:
            self._store(record)

    def release(self) -> None:
        """Store and acknowledge the held records."""
        held, self.held = self.held or [], None
        for record, on_sent in held:
            self._store(record)
            on_sent(None)

    def fill(self, count: int, *, keys: int = 7) -> None:
        """Append records to the source, over all partitions."""
        for number in range(count):
            key = b"k%d" % (number % keys)
            self.orders.append(TOPIC, number % PARTITIONS, b"v%d" % number, key=key, timestamp_ms=number)

    @property
    def open(self) -> dict[bytes, Record]:
        """Copies in the wait topic without a null record, as they were consumed."""
        found: dict[bytes, Record] = {}
        for record in self.copies():
            assert record.key is not None
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = read_wait_record(record).record
        return found

    def copies(self) -> list[Record]:
        """All records of the wait topic."""
        return [record for records in self.waits.records.values() for record in records]

    @property
    def null_records(self) -> int:
        return sum(record.value is None for record in self.copies())

    def _store(self, record: OutRecord) -> None:
        if record.topic == WAIT:
            self.waits.append(WAIT, record.partition, record.value, key=record.key, headers=record.headers)
        elif record.topic == TOPIC:
            self.orders.append(TOPIC, record.partition, record.value, key=record.key, headers=record.headers)
        else:
            self.dead_letters.append(record)


class Member:
    """One process: a consumer with interleavings from the world's randomness.

    hangs: no handler ends by itself.
    """

    def __init__(
        self, world: World, handler: Callable[[Record], object], *, hangs: bool = False, **options: Any
    ) -> None:
        self._world = world
        self.metrics = RegistryMetrics(CollectorRegistry())
        self.inner = MemorySource(world.orders)
        more = {name: options.pop(name) for name in ("expiry_s", "preparing_max") if name in options}
        registry_options = RegistryOptions(WAIT, **more)
        self.registry = RegistrySource(self.inner, world, registry_options, metrics=self.metrics, clock=world.clock)
        self.scheduler = SeededScheduler(handler, world.clock, world.random, 0.0 if hangs else 0.9)
        setup = Setup(
            metrics=ConsumerMetrics(CollectorRegistry()),
            clock=world.clock,
            randomness=world.random,
            policy=POLICY,
            producer=world,
            dead_letter_topic=DLQ,
            **options,
        )
        self.core = Core(self.registry, self.scheduler, self.scheduler, setup)
        self.inner.on_idle = self.scheduler.wait
        self.registry.start(self.core)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            if self.core.failure is not None:
                raise self.core.failure
            self.core.step(0.05)

    def run_until(self, done: Callable[[], bool], steps_max: int = 20_000) -> None:
        for _ in range(steps_max):
            if done():
                return
            self.step()
        raise AssertionError(f"not after {steps_max} steps: {self.core.status}")

    def kill(self) -> None:
        """Crash the process: running handlers have no effect."""
        self.scheduler.running.clear()
        self._world.orders.kill(self.inner)

    def close(self) -> None:
        """Drain, then leave the group."""
        self.core.drain()
        self.registry.close()


class WaitSource(MemorySource):
    """AtomicSource of the wait topic. killed: the point in a write at which its process ends. undecided: the next write
    reports no result, and this is whether it is durable; None: the result is reported.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world.waits)
        self._world = world
        self._under_way: bool | None = None
        self.killed: str | None = None
        self.undecided: bool | None = None
        self.writes: list[int] = []  # Number of records of each durable write.

    def write(self, records: Sequence[OutRecord], positions: Mapping[TopicPartition, Position]) -> None:
        if self._under_way is not None:
            durable, self._under_way = self._under_way, None
            if not durable:
                raise CommitFailed("not written")
            return
        assert {(WAIT, record.partition) for record in records} == positions.keys()
        if not positions.keys() <= self.assigned or self not in self._world.waits.members:
            raise CommitFailed("not ours", reason="stale_member")
        faults = {self._world.fault(record) for record in records}
        if "record_too_large" in faults:
            raise SendFailed("one is too large", reason="record_too_large")
        if faults != {None}:
            raise CommitFailed("not written")
        if self.killed == "before":
            raise Killed
        self._under_way, self.undecided = self.undecided, None
        if self._under_way is not False:
            self._world.store(records)
            self.writes.append(len(records))
        if self._under_way is not None:
            raise CommitFailed("no answer", reason="undecided")
        if self.killed == "after":
            raise Killed


class Scanner:
    """A scanner, as one process would run it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.source = WaitSource(world)
        self.metrics = RegistryMetrics(CollectorRegistry())
        self.scanner = ExpiryScanner(self.source, DLQ, metrics=self.metrics, clock=world.clock)

    def step(self, count: int = 5) -> None:
        for _ in range(count):
            self.scanner.step(0.0)

    def kill(self) -> None:
        self._world.waits.kill(self.source)

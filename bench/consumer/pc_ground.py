"""Ground of the parallel consumer's benchmarks: fills topics of numbered records, and runs a consumer over them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from tsdb.parallel_consumer import (
    Action,
    ConsumerMetrics,
    ErrorPolicy,
    Executor,
    Options,
    Order,
    ParallelConsumer,
    Record,
    by_key,
)
from tsdb.parallel_consumer.kafka import KafkaSource

POLICY = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class NumberedTopic:
    """A topic of numbered records: record i has key i % keys, in partition (i % keys) % partitions."""

    bootstrap: str
    name: str
    count: int

    def settings(self, **more: object) -> dict[str, object]:
        """Settings of a consumer in a new group."""
        return {"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex, **more}


def filled(bootstrap: str, partitions: int, count: int, keys: int, *, block: int = 0) -> NumberedTopic:
    """Create and fill a topic. block: number of consecutive records in a partition, whatever their keys; 0: partitions
    by key."""
    name = f"bench-{uuid.uuid4().hex[:10]}"
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(settings)  # Kept in a variable, because the futures are answered only while the client lives.
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(30)
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": count + 1})
    for number in range(count):
        key = number % keys
        place = (number // block if block else key) % partitions
        producer.produce(name, b"%d" % number, b"%d" % key, partition=place)
    assert producer.flush(60) == 0, "not all records were written"
    return NumberedTopic(bootstrap, name, count)


class FinishedCounter:
    """Counts finished records; times are monotonic seconds. Thread-safe.

    edge: number of records at the start and at the end that are not measured, because not all slots are busy then.
    """

    def __init__(self, count: int, edge: int = 0) -> None:
        self._left = count
        self._first = count - edge
        self._last = edge
        self._lock = threading.Lock()  # Guards _left; an innermost lock.
        self.began_at = self.ended_at = 0.0
        self.done = threading.Event()

    def begin(self) -> None:
        """A record's handler begins."""
        if not self.began_at and self._left == self._first:
            self.began_at = time.perf_counter()

    def end(self) -> None:
        """A record's handler has ended."""
        with self._lock:
            self._left -= 1
            left = self._left
        if left == self._first:
            self.began_at = time.perf_counter()
        if left == self._last:
            self.ended_at = time.perf_counter()
        if left == 0:
            self.done.set()

    @property
    def seconds(self) -> float:
        """Seconds from the first begin to the last end. With an edge, seconds between the first and the last measured
        end.
        """
        return self.ended_at - self.began_at


def consume(
    topic: NumberedTopic,
    make: Callable[[FinishedCounter], Executor],
    concurrency: int,
    order: Order = by_key,
    *,
    edge: int = 0,
) -> float:
    """Seconds that one consumer needs for the topic. make: creates the executor, which counts what it finishes."""
    progress = FinishedCounter(topic.count, edge)
    consumer = ParallelConsumer(
        KafkaSource(topic.settings(), [topic.name]),
        make(progress),
        order=order,
        policy=POLICY,
        options=Options(concurrency=concurrency),
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    with consumer:
        assert progress.done.wait(WITHIN_S), f"not done: {consumer.failure()!r} {consumer.status}"
    return progress.seconds


def on_thread(call: Callable[[Record], object], progress: FinishedCounter) -> Callable[[Record], None]:
    """A blocking handler that calls `call` and reports to `progress`."""

    def handle(record: Record) -> None:
        progress.begin()
        call(record)
        progress.end()

    return handle


def on_loop(call: Callable[[Record], Any], progress: FinishedCounter) -> Callable[[Record], Any]:
    """An async handler that awaits `call` and reports to `progress`."""

    async def handle(record: Record) -> None:
        progress.begin()
        await call(record)
        progress.end()

    return handle

"""Overhead of the parallel consumer: a handler that does nothing, on one core, beside a plain loop over the records.

In memory and on a fresh broker (records of 100 bytes, 1,000 keys with a Zipf distribution). Records per CPU second of
the process. `compute`: a handler that computes for COMPUTE_US microseconds, by wall clock: a bare loop over a list, a
loop that polls and commits the same source, and ProcessExecutor.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from bench.measure import say, spent
from stack.kafka import KafkaCluster
from tsdb.parallel_consumer import (
    Action,
    AsyncioExecutor,
    BatchExecutor,
    ColumnExecutor,
    ConsumerMetrics,
    ErrorPolicy,
    Executor,
    InlineExecutor,
    Options,
    Order,
    ParallelConsumer,
    Position,
    ProcessExecutor,
    Record,
    RecordColumns,
    Source,
    ThreadExecutor,
    by_key,
    unordered,
)
from tsdb.parallel_consumer.executors.batching import BatchSize
from tsdb.parallel_consumer.kafka import KafkaSource
from tsdb.parallel_consumer.testing import MemoryBroker, MemorySource

TOPIC = "overhead"
PARTITIONS = 4
KEYS = 1_000
ROUNDS = 5
POLICY = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
COMPUTE_US = (2, 20, 100, 1_000)

MakeSource = Callable[[], Source]


def main(argv: Sequence[str]) -> dict[str, object]:
    """Records per CPU second, medians of ROUNDS; the ratio to the plain loop of the same round."""
    parser = argparse.ArgumentParser(prog="bench pc_overhead", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the records")
    parser.add_argument("--compute", action="store_true", help="the handler that computes, alone")
    parser.add_argument("--memory", action="store_true", help="without a broker")
    arguments = parser.parse_args(argv)
    count = 40_000 if arguments.quick else 200_000
    broker = _broker(count)
    found: dict[str, object] = {}
    if not arguments.compute:
        found["memory"] = _modes(lambda: _fresh(broker), lambda: _plain_memory(broker), count)
    if not (arguments.memory or arguments.compute):
        with KafkaCluster() as cluster:
            found["kafka"] = _on_kafka(cluster.bootstrap, count)
    found["compute, by key"] = {f"{us}us": _compute(us, by_key) for us in COMPUTE_US}
    return found


# Modes.


def nothing(record: object) -> None:
    """The handler that does nothing."""


async def nothing_async(record: object) -> None:
    """The async handler that does nothing."""


def _nothing_columns(columns: RecordColumns) -> None:
    assert len(columns.values) == len(columns.keys) == len(columns)


def _nothing_batch(records: list[Record]) -> None:
    """The batch handler that does nothing."""


MODES: dict[str, tuple[Order, Callable[[], Executor]]] = {
    "unordered, on the owner": (unordered, lambda: InlineExecutor(nothing)),
    "by key, on the owner": (by_key, lambda: InlineExecutor(nothing)),
    "by key, on processes": (by_key, lambda: ProcessExecutor(nothing)),
    "unordered, on threads": (unordered, lambda: ThreadExecutor(nothing, 4)),
    "by key, on threads": (by_key, lambda: ThreadExecutor(nothing, 4)),
    "by key, async": (by_key, lambda: AsyncioExecutor(nothing_async)),
    "unordered, in batches": (unordered, lambda: BatchExecutor(_nothing_batch, BatchSize(500), parallel=2)),
    "by partition, in columns": (by_key, lambda: ColumnExecutor(_nothing_columns)),
}


def _modes(source: MakeSource, plain: Callable[[], float], count: int) -> dict[str, object]:
    rates: dict[str, list[float]] = {name: [] for name in ("plain loop", *MODES)}
    for number in range(ROUNDS + 1):
        measured = {"plain loop": plain()}
        for name, (order, executor) in MODES.items():
            measured[name] = _consume(source(), order, executor(), count)
        if number:
            for name, rate in measured.items():
                rates[name].append(rate)
        say(", ".join(f"{name} {rate:,.0f}" for name, rate in measured.items()))
    plains = rates["plain loop"]
    return {
        name: {
            "records_per_cpu_s": round(statistics.median(found)),
            "of_plain": round(statistics.median(p / f for p, f in zip(plains, found, strict=True)), 2),
        }
        for name, found in rates.items()
    }


def _consume(source: Source, order: Order, executor: Executor, count: int) -> float:
    consumer = ParallelConsumer(
        source,
        executor,
        order=order,
        policy=POLICY,
        options=Options(concurrency=1_000, records_max=20_000),
        metrics=ConsumerMetrics(CollectorRegistry()),
        on_committed=lambda positions: _note(positions, done, count, all_done),
    )
    done: dict[Any, int] = {}
    all_done = threading.Event()
    with spent() as cost:
        consumer.start()
        assert all_done.wait(120.0), f"{done} of {count}: {consumer.failure()!r}"
    consumer.close()
    assert consumer.join(30.0)
    return count / cost.cpu_s


def _note(positions: Any, done: dict[Any, int], count: int, all_done: threading.Event) -> None:
    done.update({topic_partition: at.next_offset for topic_partition, at in positions.items()})
    if sum(done.values()) >= count:
        all_done.set()


# Source, producer and group are in memory.


def _broker(count: int) -> MemoryBroker:
    broker, keys = MemoryBroker(PARTITIONS, TOPIC), _zipf(count)
    for number, key in enumerate(keys):
        broker.append(TOPIC, key % PARTITIONS, b"v" * 100, key=b"%d" % key, timestamp_ms=number)
    return broker


def _fresh(broker: MemoryBroker) -> MemorySource:
    """A new source over the broker. It has no commits, so all records are read again."""
    broker.commits.clear()
    source = MemorySource(broker)
    source.on_idle = time.sleep  # Otherwise waiting for a record or a commit is a busy loop.
    return source


def _zipf(count: int) -> list[int]:
    weights = [1 / rank for rank in range(1, KEYS + 1)]
    return random.Random(1).choices(range(KEYS), weights, k=count)


def _plain_memory(broker: MemoryBroker) -> float:
    """Records per CPU second of the least possible work: a loop that polls and calls the handler with each record."""
    source = _fresh(broker)
    source.start(_IgnoringListener())
    left = sum(len(records) for records in broker.records.values())
    count = left
    with spent() as cost:
        while left:
            records = source.poll(0.0, 1_000).records
            for record in records:
                nothing(record)
            left -= len(records)
    broker.kill(source)
    return count / cost.cpu_s


class _IgnoringListener:
    """A listener that ignores all calls."""

    def on_assigned(self, starts: object) -> None: ...

    def on_revoked(self, partitions: object) -> None: ...

    def on_lost(self, partitions: object) -> None: ...


# Source, producer and group are on Kafka.


def _on_kafka(bootstrap: str, count: int) -> dict[str, object]:
    topic = f"{TOPIC}-{uuid.uuid4().hex[:8]}"
    _fill(bootstrap, topic, count)

    def source() -> Source:
        config = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "session.timeout.ms": 30_000}
        return KafkaSource(config, [topic])

    return _modes(source, lambda: _plain_kafka(bootstrap, topic, count), count)


def _fill(bootstrap: str, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number, key in enumerate(_zipf(count)):
        producer.produce(topic, b"v" * 100, b"%d" % key, partition=key % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def _plain_kafka(bootstrap: str, topic: str, count: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([KafkaPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    left = count
    with spent() as cost:
        while left:
            for message in consumer.consume(min(1_000, left), 1.0):
                if message.error() is None:
                    nothing((message.key(), message.value()))
                    left -= 1
    consumer.close()
    return count / cost.cpu_s


# A handler that computes.


def _compute(microseconds: int, order: Order) -> dict[str, float]:
    count = max(6_000, min(1_000_000, 3_000_000 // microseconds))
    handler, broker = _COMPUTING[microseconds], _broker(count)
    bare: list[float] = []
    loop: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS):
        bare.append(_bare_rate(broker, handler, count))
        loop.append(_loop_rate(broker, handler, count))
        ours.append(_wall_rate(broker, handler, order, count))
        say(f"{microseconds} us: bare {bare[-1]:,.0f}, loop {loop[-1]:,.0f}, ours {ours[-1]:,.0f}")
    return {
        "bare_records_per_s": round(statistics.median(bare)),
        "loop_records_per_s": round(statistics.median(loop)),
        "ours_records_per_s": round(statistics.median(ours)),
        "of_bare": round(statistics.median(o / p for o, p in zip(ours, bare, strict=True)), 2),
        "of_loop": round(statistics.median(o / p for o, p in zip(ours, loop, strict=True)), 2),
    }


def _bare_rate(broker: MemoryBroker, handler: Callable[[Record], object], count: int) -> float:
    began = time.perf_counter()
    for records in broker.records.values():
        for record in records:
            handler(record)
    return count / (time.perf_counter() - began)


def _loop_rate(broker: MemoryBroker, handler: Callable[[Record], object], count: int) -> float:
    """Records a second of the usual loop over the same source: poll, handle, commit."""
    source, left = _fresh(broker), count
    source.start(_IgnoringListener())
    began = time.perf_counter()
    while left:
        records = source.poll(0.0, 1_000).records
        for record in records:
            handler(record)
        last = {(record.topic, record.partition): record.offset for record in records}
        source.commit({topic_partition: Position(offset + 1) for topic_partition, offset in last.items()})
        left -= len(records)
    seconds = time.perf_counter() - began
    broker.kill(source)
    return count / seconds


def _wall_rate(broker: MemoryBroker, handler: Callable[[Record], object], order: Order, count: int) -> float:
    """Records a second while the consumer is busy, measured at its commits: sampling more often would slow it down."""
    metrics = ConsumerMetrics(CollectorRegistry())
    seen: list[tuple[float, float]] = []  # (finished records, time) at each commit.
    all_done = threading.Event()

    def look(positions: object) -> None:
        ((finished, *_),) = ([sample.value for sample in one.samples] for one in metrics.finished.collect())
        seen.append((finished, time.perf_counter()))
        if finished == count:
            all_done.set()

    consumer = ParallelConsumer(
        _fresh(broker),
        ProcessExecutor(handler),
        order=order,
        policy=POLICY,
        options=Options(concurrency=500),
        metrics=metrics,
        on_committed=look,
    )
    with consumer:
        assert all_done.wait(120.0), f"{seen[-1:]} of {count}: {consumer.failure()!r}"
    # The first half is not measured: the worker processes start then, once. The last commit is not measured either: it
    # comes when its interval ends, long after the last record.
    busy = [one for one in seen if count // 2 <= one[0] < count]
    (first, began), (last, ended) = busy[0], busy[-1]
    return (last - first) / (ended - began)


def _spin(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def _compute_2(record: Record) -> None:
    _spin(40)


def _compute_20(record: Record) -> None:
    _spin(400)


def _compute_100(record: Record) -> None:
    _spin(2_000)


def _compute_1000(record: Record) -> None:
    _spin(20_000)


_COMPUTING: dict[int, Callable[[Record], object]] = {
    2: _compute_2,
    20: _compute_20,
    100: _compute_100,
    1_000: _compute_1000,
}

"""The consumer on real threads: each kind of handler, drain, abort, and errors that end it."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter

from support.servers.logs import wait_until
from tsdb.parallel_consumer import (
    Action,
    AsyncioExecutor,
    BatchExecutor,
    CallbackExecutor,
    ConsumerError,
    ConsumerMetrics,
    Done,
    ErrorPolicy,
    Executor,
    Fenced,
    HandlerStopped,
    Options,
    ParallelConsumer,
    Record,
    SendFailed,
    ThreadExecutor,
)
from tsdb.parallel_consumer import metrics as metrics_module
from tsdb.parallel_consumer.registry import RegistryMetrics
from tsdb.parallel_consumer.testing import MemoryBroker, MemorySource

TOPIC = "orders"
POLICY = ErrorPolicy(default=Action.FATAL, exhausted=Action.FATAL, crashes_max=None)
OPTIONS = Options(concurrency=4, drain_s=60.0, commit_interval_s=0.01)


def broker_of(records: int) -> MemoryBroker:
    broker = MemoryBroker(2, TOPIC)
    for number in range(records):
        broker.append(TOPIC, number % 2, b"%d" % number, key=b"%d" % (number % 7))
    return broker


def consumer_of(broker: MemoryBroker, executor: Executor, options: Options = OPTIONS) -> ParallelConsumer:
    metrics = ConsumerMetrics(CollectorRegistry())
    return ParallelConsumer(MemorySource(broker), executor, policy=POLICY, options=options, metrics=metrics)


def all_committed(broker: MemoryBroker) -> bool:
    return {topic_partition: at.next_offset for topic_partition, at in broker.commits.items()} == broker.ends


Make = Callable[[list[int]], Executor]


def on_threads(done: list[int]) -> Executor:
    return ThreadExecutor(lambda record: done.append(int(record.value or b"")), 4)


def on_loop(done: list[int]) -> Executor:
    async def handle(record: Record) -> None:
        await asyncio.sleep(0)
        done.append(int(record.value or b""))

    return AsyncioExecutor(handle)


def with_callback(done: list[int]) -> Executor:
    def handle(record: Record, answer: Done) -> None:
        def end() -> None:
            done.append(int(record.value or b""))
            answer(None)

        threading.Thread(target=end).start()

    return CallbackExecutor(handle)


@pytest.mark.parametrize("make", [on_threads, on_loop, with_callback])
def test_every_record_is_handled_once_in_the_order_of_its_key(make: Make) -> None:
    broker, done = broker_of(300), list[int]()
    with consumer_of(broker, make(done)):
        wait_until(lambda: all_committed(broker))
    assert sorted(done) == list(range(300))
    for lane in range(14):
        numbers = [number for number in done if (number % 7, number % 2) == (lane % 7, lane // 7)]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("kind", ["threads", "loop", "callback"])
def test_an_exception_of_any_handler_reaches_join(kind: str) -> None:
    def fails(record: Record, *more: object) -> None:
        raise ZeroDivisionError("a bug")

    async def fails_later(record: Record) -> None:
        raise ZeroDivisionError("a bug")

    kinds: dict[str, Executor] = {
        "threads": ThreadExecutor(fails, 1),
        "loop": AsyncioExecutor(fails_later),
        "callback": CallbackExecutor(fails),
    }
    executor = kinds[kind]
    consumer = consumer_of(broker_of(1), executor)
    consumer.start()
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(HandlerStopped, match="a bug") as stopped:
        consumer.join(60.0)
    assert isinstance(stopped.value.__cause__, ZeroDivisionError)


@contextmanager
def held() -> Iterator[tuple[ThreadExecutor, threading.Event, list[int]]]:
    """A handler that waits until the test releases it."""
    release, done = threading.Event(), list[int]()

    def handle(record: Record) -> None:
        release.wait(60.0)
        done.append(record.offset)

    try:
        yield ThreadExecutor(handle, 4), release, done
    finally:
        release.set()


def test_a_drain_waits_for_running_records_and_commits_them() -> None:
    broker = broker_of(100)
    with held() as (executor, release, done):
        consumer = consumer_of(broker, executor)
        consumer.start()
        wait_until(lambda: consumer.status.running == 4)
        consumer.close()
        assert not consumer.join(0.1)
        release.set()
        assert consumer.join(60.0)
        assert len(done) == 4
        assert sum(at.next_offset for at in broker.commits.values()) > 0
        assert broker.members == []


def test_an_abort_drops_running_records() -> None:
    broker = broker_of(100)
    with held() as (executor, _, done):
        consumer = consumer_of(broker, executor, Options(concurrency=4, drain_s=3_600.0))
        consumer.start()
        wait_until(lambda: consumer.status.running == 4)
        consumer.close()
        assert not consumer.join(0.05)
        consumer.abort()
        assert consumer.join(60.0)
        assert done == []
        assert all(at.next_offset == 0 for at in broker.commits.values())


def test_a_failing_source_ends_the_consumer() -> None:
    broker = broker_of(1)
    source = MemorySource(broker)

    def broken(timeout_s: float, records_max: int) -> None:
        raise OSError("the cable")

    source.poll = broken  # type: ignore[assignment,method-assign]  # a fault
    consumer = ParallelConsumer(
        source, ThreadExecutor(print, 1), policy=POLICY, metrics=ConsumerMetrics(CollectorRegistry())
    )
    consumer.start()
    wait_until(lambda: consumer.failure() is not None)
    with pytest.raises(OSError, match="the cable"):
        consumer.join(60.0)


@pytest.mark.parametrize("error", [Fenced("another has our name"), SendFailed("too large", reason="record_too_large")])
def test_a_permanent_commit_error_ends_the_consumer_at_once(error: ConsumerError) -> None:
    broker = broker_of(100)
    source = MemorySource(broker)

    def refuse(positions: object) -> None:
        raise error

    source.commit = refuse  # type: ignore[method-assign]  # a fault
    hanging = threading.Event()

    def handle(record: Record) -> None:
        if record.offset > 10:
            hanging.wait()

    consumer = ParallelConsumer(
        source,
        ThreadExecutor(handle, 4),
        policy=POLICY,
        options=Options(concurrency=4, drain_s=3_600.0, rebalance_drain_s=3_600.0, commit_interval_s=0.01),
        metrics=ConsumerMetrics(CollectorRegistry()),
    )
    consumer.start()
    wait_until(lambda: consumer.failure() is not None)
    hanging.set()
    with pytest.raises(type(error)) as ended:
        consumer.join(60.0)
    assert ended.value is error
    assert not broker.commits


def test_a_consumer_never_started_joins_at_once() -> None:
    consumer = consumer_of(broker_of(1), ThreadExecutor(print, 1))
    consumer.close()
    assert consumer.join(0.0)
    consumer.abort()


def test_two_consumers_of_one_process_share_the_metrics_of_its_registry() -> None:
    registry, first, second = CollectorRegistry(), broker_of(20), broker_of(30)
    done: list[int] = []
    consumers = [
        ParallelConsumer(
            MemorySource(broker), on_threads(done), policy=POLICY, options=OPTIONS, metrics=ConsumerMetrics(registry)
        )
        for broker in (first, second)
    ]
    with consumers[0], consumers[1]:
        wait_until(lambda: all_committed(first) and all_committed(second))
        wait_until(lambda: registry.get_sample_value("parallel_consumer_partitions") == 4)
    assert registry.get_sample_value("parallel_consumer_records_finished_total") == 50
    assert registry.get_sample_value("parallel_consumer_partitions") == 0


def test_consumers_on_the_default_registry_follow_each_other_and_a_reload() -> None:
    for _ in range(2):
        broker = broker_of(4)
        with ParallelConsumer(MemorySource(broker), on_threads([]), policy=POLICY, options=OPTIONS):
            wait_until(lambda: all_committed(broker))  # noqa: B023
    before = REGISTRY.get_sample_value("parallel_consumer_records_finished_total")
    importlib.reload(metrics_module).ConsumerMetrics(REGISTRY).finished.inc()
    assert REGISTRY.get_sample_value("parallel_consumer_records_finished_total") == (before or 0) + 1


def test_a_registry_and_its_scanner_twice_in_a_process_share_their_metrics() -> None:
    collector = CollectorRegistry()
    RegistryMetrics(collector).prepared.inc()
    RegistryMetrics(collector).prepared.inc()
    assert collector.get_sample_value("parallel_consumer_registry_prepared_total") == 2


def test_a_metric_of_another_kind_under_the_name_is_refused() -> None:
    registry = CollectorRegistry()
    Counter("parallel_consumer_running", "Of another program.", registry=registry)
    with pytest.raises(ValueError, match="parallel_consumer_running"):
        ConsumerMetrics(registry)


class Exits:
    """An answer whose check ends its thread: a bug of an executor, as the consumer sees it."""

    def __str__(self) -> str:
        raise SystemExit("no text")


async def exits(record: Record) -> None:
    raise SystemExit("the handler exits")


def strange_answer(records: list[Record]) -> Any:
    return Exits()


async def strange_answer_later(records: list[Record]) -> Any:
    return Exits()


@pytest.mark.parametrize(
    "executor",
    [
        AsyncioExecutor(exits),
        BatchExecutor(strange_answer, parallel=1),
        BatchExecutor(strange_answer_later, parallel=1),
    ],
    ids=["loop", "threads", "task"],
)
def test_a_thread_of_the_executor_that_dies_ends_the_consumer(executor: Executor) -> None:
    broker = broker_of(20)
    policy = ErrorPolicy(default=Action.RETRY, exhausted=Action.FATAL, crashes_max=None)
    metrics = ConsumerMetrics(CollectorRegistry())
    consumer = ParallelConsumer(
        MemorySource(broker), executor, policy=policy, options=Options(drain_s=0.2), metrics=metrics
    )
    consumer.start()
    wait_until(lambda: consumer.failure() is not None)
    assert isinstance(consumer.failure(), SystemExit)
    with pytest.raises(SystemExit):
        consumer.join(60.0)

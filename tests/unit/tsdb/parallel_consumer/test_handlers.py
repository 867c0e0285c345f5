"""Handlers: defer, nack, requeue, batches and columns. On a broker in memory."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from support.servers.logs import wait_until
from tsdb.parallel_consumer import (
    Action,
    AsyncioExecutor,
    Backoff,
    BatchExecutor,
    BatchSize,
    ColumnExecutor,
    ConsumerMetrics,
    Context,
    Deferral,
    ErrorPolicy,
    Executor,
    InlineExecutor,
    InvalidConfig,
    Options,
    Order,
    OutRecord,
    ParallelConsumer,
    Record,
    RecordColumns,
    ThreadExecutor,
    by_key,
    unordered,
)
from tsdb.parallel_consumer.executors.context import takes_context
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, MemorySource, SeededColumns, Simulation

TOPIC = "orders"
NO_PAUSE = Backoff(first_s=0.001, longest_s=0.001)
POLICY = ErrorPolicy(crashes_max=None, retry_backoff=NO_PAUSE, block_backoff=NO_PAUSE, attempts_max=3)


def broker_of(records: int, *, keys: int = 1_000, partitions: int = 1) -> MemoryBroker:
    broker = MemoryBroker(partitions, TOPIC)
    for number in range(records):
        broker.append(TOPIC, number % partitions, b"%d" % number, key=b"k%d" % (number % keys))
    return broker


class Running:
    """A consumer with its thread, producer and metrics."""

    def __init__(
        self,
        broker: MemoryBroker,
        executor: Executor,
        *,
        policy: ErrorPolicy = POLICY,
        order: Order = by_key,
        options: Options | None = None,
    ) -> None:
        self.broker, self.producer, self.registry = broker, MemoryProducer(), CollectorRegistry()
        self.consumer = ParallelConsumer(
            MemorySource(broker),
            executor,
            order=order,
            policy=policy,
            options=options or Options(concurrency=64, commit_interval_s=0.01),
            producer=self.producer,
            dead_letter_topic="dlq",
            metrics=ConsumerMetrics(self.registry),
        )

    def until_committed(self) -> list[OutRecord]:
        """Run until all records are committed; returns the dead letters."""
        with self.consumer:
            wait_until(lambda: self.consumer.failure() is not None or self._all_committed())
        return self.producer.sent

    def _all_committed(self) -> bool:
        commits, ends = self.broker.commits, self.broker.ends
        return all(
            topic_partition in commits and commits[topic_partition].next_offset == end
            for topic_partition, end in ends.items()
            if end
        )

    def counted(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"parallel_consumer_{name}", labels) or 0.0


# Deferrals.


def test_a_deferred_record_is_finished_by_its_deferral_and_no_sooner() -> None:
    broker, deferred = broker_of(10), list[Deferral]()
    running = Running(broker, ThreadExecutor(lambda record, context: deferred.append(context.defer()), 2))
    with running.consumer:
        wait_until(lambda: len(deferred) == 10)
        assert all(at.next_offset == 0 for at in broker.commits.values())
        for deferral in sorted(deferred, key=lambda deferral: -deferral.record.offset)[:9]:
            deferral.complete()
        wait_until(lambda: (TOPIC, 0) in broker.commits)
        threading.Event().wait(0.05)  # Commits go on; records with an open deferral are not in them.
        assert broker.commits[TOPIC, 0].next_offset == 0
        min(deferred, key=lambda deferral: deferral.record.offset).complete()
        wait_until(lambda: broker.commits[TOPIC, 0].next_offset == 10)


def test_a_deferral_works_in_async_handlers_and_may_fail() -> None:
    attempts = list[tuple[int, int]]()

    async def handle(record: Record, context: Context) -> None:
        deferral = context.defer()
        attempts.append((record.offset, context.attempt))
        loop = asyncio.get_running_loop()
        if record.offset == 3 and context.attempt < 3:
            loop.call_soon(deferral.fail, TimeoutError("not now"))
        else:
            loop.call_soon(deferral.complete)

    Running(broker_of(6), AsyncioExecutor(handle)).until_committed()
    assert [attempt for offset, attempt in attempts if offset == 3] == [1, 2, 3]
    assert len(attempts) == 8


def test_a_dropped_deferral_is_a_failure_not_a_freeze_and_not_a_loss() -> None:
    dropped = list[int]()

    def handle(record: Record, context: Context) -> None:
        deferral = context.defer()
        if record.offset == 2:
            dropped.append(context.attempt)
            del deferral
            gc.collect()
        else:
            deferral.complete()

    running = Running(broker_of(5), ThreadExecutor(handle, 2))
    (dead_letter,) = running.until_committed()
    assert dropped == [1, 2, 3]
    headers = dict(dead_letter.headers)
    assert headers["dlq-offset"] == b"2"
    assert headers["dlq-exception"].endswith(b"DeferralLost")
    assert b"offset 2" in headers["dlq-message"]


@pytest.mark.slow
def test_the_alarm_of_an_overdue_deferral_names_the_offset_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    broker, deferrals = broker_of(30), list[Deferral]()

    def handle(record: Record) -> None:
        """Returns at once except for offset 17."""

    simulation = Simulation(
        broker, handle, 1, ends_share=0.0, policy=POLICY, producer=MemoryProducer(), dead_letter_topic="dlq"
    )
    with caplog.at_level(logging.ERROR):
        while simulation.clock.monotonic() < 1_000.0:
            simulation.step(wait_s=1.0)
            for index in reversed(range(len(simulation.scheduler.running))):
                record, completion = simulation.scheduler.running[index]
                if record.offset != 17:
                    simulation.scheduler.end(index)
                elif not deferrals:
                    deferrals.append(Context(record, completion).defer())
    (overdue,) = simulation.core.status.deferred
    assert (overdue.topic_partition, overdue.offset, overdue.key) == ((TOPIC, 0), 17, b"k17")
    assert simulation.counted("deferred_overdue") == 1
    alarms = [record.getMessage() for record in caplog.records if "deferred end overdue" in record.getMessage()]
    assert 3 <= len(alarms) <= 6
    assert all("topic orders, partition 0, offset 17" in alarm for alarm in alarms)
    assert broker.commits[TOPIC, 0].next_offset == 17, (
        "the deferred record became a dead letter, or records below it were not committed"
    )
    deferrals[0].complete()
    simulation.run_until(lambda: broker.commits[TOPIC, 0].next_offset == 30)
    assert simulation.core.status.deferred == []


def test_a_deferral_completed_twice_or_after_an_exception_counts_once() -> None:
    calls = list[int]()

    def handle(record: Record, context: Context) -> None:
        calls.append(record.offset)
        deferral = context.defer()
        if context.attempt == 1:
            try:
                raise ValueError("after all")
            finally:
                threading.Timer(0.05, deferral.complete).start()
        deferral.complete()
        deferral.complete()

    running = Running(broker_of(3), ThreadExecutor(handle, 1))
    assert running.until_committed() == []
    assert sorted(calls) == [0, 0, 1, 1, 2, 2]


class Callable2:
    """A handler that is an object."""

    def __call__(self, record: Record, context: Context) -> None: ...


@pytest.mark.parametrize(
    ("handler", "takes"),
    [
        (lambda record: None, False),
        (lambda record, context: None, True),
        (lambda record, times=3: None, False),
        (lambda *records: None, False),
        (print, False),
        (Callable2(), True),
        (dict, False),
    ],
)
def test_a_handler_gets_a_context_if_it_has_room_for_one(handler: Any, takes: bool) -> None:
    assert takes_context(handler) is takes


# Nack and requeue.


def test_a_nack_tries_again_after_its_delay_counts_no_attempt_and_keeps_the_order() -> None:
    broker = broker_of(4, keys=1)
    done = list[tuple[float, int]]()
    nacks = 5

    def handler(record: Record) -> None:
        nonlocal nacks
        if record.offset == 1 and nacks:
            nacks -= 1
            Context.nack(None, 7.0)  # type: ignore[arg-type]  # it needs nothing of it
        done.append((simulation.clock.monotonic(), record.offset))

    producer = MemoryProducer()
    simulation = Simulation(broker, handler, 1, policy=POLICY, producer=producer, dead_letter_topic="dlq")
    simulation.run_until(lambda: len(done) == 4)
    assert [offset for _, offset in done] == [0, 1, 2, 3]
    assert done[1][0] - done[0][0] == pytest.approx(35.0, abs=1.0)
    assert not producer.sent
    assert simulation.counted("record_failures_total", kind="nack") == 5


def test_a_requeue_by_the_handler_goes_to_the_end_of_the_topic() -> None:
    def handle(record: Record, context: Context) -> None:
        if record.offset == 1:
            context.requeue()

    running = Running(broker_of(3), ThreadExecutor(handle, 2))
    (sent,) = running.until_committed()
    assert (sent.topic, sent.key, dict(sent.headers)["requeue-ttl"]) == (TOPIC, b"k1", b"2")


# Inline.


@pytest.mark.parametrize("order", [by_key, unordered])
def test_inline_records_run_once_in_order_and_a_poisoned_record_delays_only_its_key(
    order: Order,
) -> None:
    done = list[Record]()

    def handle(record: Record) -> None:
        if record.offset == 40:
            raise ValueError("poison")
        done.append(record)

    broker = broker_of(5_000, keys=10, partitions=2)
    running = Running(
        broker, InlineExecutor(handle), order=order, options=Options(concurrency=64, commit_interval_s=0.01)
    )
    dead_letters = running.until_committed()
    assert sorted(dict(dead_letter.headers)["dlq-partition"] for dead_letter in dead_letters) == [b"0", b"1"]
    assert len({(record.topic_partition, record.offset) for record in done}) == len(done) == 4_998
    if order is by_key:
        for lane in {(record.topic_partition, record.key) for record in done}:
            offsets = [record.offset for record in done if (record.topic_partition, record.key) == lane]
            assert offsets == sorted(offsets)
    assert running.counted("records_finished_total") == 5_000


# Batches.


class Batches:
    """A handler of batches that fails the given records."""

    def __init__(self, *poison: int) -> None:
        self.poison = poison
        self.batches: list[list[int]] = []
        self.done: list[Record] = []
        self._lock = threading.Lock()

    def all_or_nothing(self, records: list[Record]) -> None:
        with self._lock:
            self.batches.append([record.offset for record in records])
        if any(record.offset in self.poison for record in records):
            raise ValueError("one of them")
        with self._lock:
            self.done += records

    def each(self, records: list[Record]) -> Sequence[BaseException | None]:
        with self._lock:
            self.batches.append([record.offset for record in records])
            self.done += [record for record in records if record.offset not in self.poison]
        return [ValueError("this one") if record.offset in self.poison else None for record in records]

    async def async_each(self, records: list[Record]) -> Sequence[BaseException | None]:
        await asyncio.sleep(0)
        return self.each(records)


@pytest.mark.parametrize("kind", ["all_or_nothing", "each", "async_each"])
def test_a_poisoned_record_of_a_batch_becomes_the_only_dead_letter(kind: str) -> None:
    batches = Batches(33, 77)
    executor = BatchExecutor(getattr(batches, kind), BatchSize(20))
    dead_letters = Running(broker_of(200), executor).until_committed()
    assert sorted(dict(dead_letter.headers)["dlq-offset"] for dead_letter in dead_letters) == [b"33", b"77"]
    assert {record.offset for record in batches.done} == set(range(200)) - {33, 77}
    assert max(map(len, batches.batches)) > 1
    assert [33] in batches.batches, "a failed record is tried alone"
    assert all(len(batch) <= 20 for batch in batches.batches)


def test_a_batch_has_one_record_of_a_key_at_most_and_keys_keep_their_order() -> None:
    batches = Batches()
    Running(broker_of(400, keys=7), BatchExecutor(batches.each, BatchSize(50))).until_committed()
    assert all(len({offset % 7 for offset in batch}) == len(batch) for batch in batches.batches)
    for key in range(7):
        offsets = [record.offset for record in batches.done if record.offset % 7 == key]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("answer", [[None], "fine", [None, None, 5, None], 7])
def test_an_invalid_result_fails_the_whole_batch(answer: Any) -> None:
    executor = BatchExecutor(lambda records: answer, BatchSize(4, min_items=4, linger_s=600.0))
    dead_letters = Running(
        broker_of(4), executor, policy=ErrorPolicy(attempts_max=1, crashes_max=None)
    ).until_committed()
    assert len(dead_letters) == 4
    assert dict(dead_letters[0].headers)["dlq-exception"].endswith(b"InvalidResult")


def test_a_batch_waits_for_its_linger_on_the_consumers_clock() -> None:
    def found() -> list[list[int]]:
        batches = Batches()
        Running(broker_of(5), BatchExecutor(batches.each, BatchSize(50, min_items=50, linger_s=0.1))).until_committed()
        assert sorted(offset for batch in batches.batches for offset in batch) == [0, 1, 2, 3, 4]
        return sorted(map(sorted, batches.batches))

    # The linger may pass between two records of one poll when this process is paused.
    wait_until(lambda: found() == [[0, 1, 2, 3, 4]])


# Columns.


def test_columns_hold_the_fields_of_the_records() -> None:
    broker = MemoryBroker(1, TOPIC)
    broker.append(TOPIC, 0, b"a", key=None, timestamp_ms=5, headers=[("h", b"\xff")])
    broker.append(TOPIC, 0, None, key=b"k", gap=3, timestamp_ms=6)
    columns = RecordColumns.of(broker.records[TOPIC, 0])
    assert (columns.offsets.tolist(), columns.timestamps_ms.tolist()) == ([0, 4], [5, 6])
    assert (columns.keys, columns.values) == ([None, b"k"], [b"a", None])
    assert columns.headers[0] == [("h", b"\xff")]
    assert (len(columns), columns.size, columns.topic_partition) == (2, 2, (TOPIC, 0))
    assert columns.record(1) == broker.records[TOPIC, 0][1]
    batch = columns.arrow()
    assert batch.column("key").to_pylist() == [None, b"k"]
    assert batch.column("offset").to_pylist() == [0, 4]
    ranges = [(start, part.offsets.tolist()) for start, part in columns.ranges(np.array([False, True]))]
    assert ranges == [(1, [4])]


class RangeHandler:
    """A handler of columns."""

    def __init__(self, *poison: int) -> None:
        self.poison = poison
        self.done: list[int] = []
        self.sizes: list[int] = []

    def each(self, columns: RecordColumns) -> Sequence[BaseException | None]:
        offsets = columns.offsets.tolist()
        self.sizes.append(len(offsets))
        self.done += [offset for offset in offsets if offset not in self.poison]
        return [ValueError("this one") if offset in self.poison else None for offset in offsets]

    def all_or_nothing(self, columns: RecordColumns) -> None:
        self.sizes.append(len(columns))
        if set(self.poison) & set(columns.offsets.tolist()):
            raise ValueError("one of them")
        self.done += columns.offsets.tolist()

    async def async_each(self, columns: RecordColumns) -> Sequence[BaseException | None]:
        await asyncio.sleep(0)
        return self.each(columns)


@pytest.mark.parametrize("kind", ["each", "all_or_nothing", "async_each"])
@pytest.mark.parametrize("order", [by_key, unordered])
def test_a_poisoned_row_becomes_a_dead_letter_and_all_others_are_done(kind: str, order: Order) -> None:
    ranges = RangeHandler(123, 700)
    executor = ColumnExecutor(getattr(ranges, kind), parallel=1)
    dead_letters = Running(broker_of(1_000), executor, order=order).until_committed()
    assert sorted(dict(dead_letter.headers)["dlq-offset"] for dead_letter in dead_letters) == [b"123", b"700"]
    assert set(ranges.done) == set(range(1_000)) - {123, 700}
    assert max(ranges.sizes) > 100
    if order is by_key:
        firsts = list(dict.fromkeys(ranges.done))
        assert firsts == sorted(firsts), "rows overtook each other"


def test_an_outage_blocks_a_block_as_a_whole() -> None:
    attempts = list[int]()

    def handle(columns: RecordColumns) -> None:
        attempts.append(len(columns))
        if len(attempts) < 4:
            raise ConnectionError("away")

    policy = ErrorPolicy({ConnectionError: Action.BLOCK}, crashes_max=None, block_backoff=NO_PAUSE)
    assert Running(broker_of(500), ColumnExecutor(handle), policy=policy).until_committed() == []
    assert attempts[:4] == [500] * 4


def test_columns_leave_out_offsets_finished_in_the_commit() -> None:
    broker, done = broker_of(60), list[int]()

    def handler(columns: RecordColumns) -> Sequence[BaseException | None]:
        done.extend(columns.offsets.tolist())
        return [ConnectionError("away") if offset in (20, 40) else None for offset in columns.offsets.tolist()]

    for_long = Backoff(first_s=1_000.0, longest_s=1_000.0)
    policy = ErrorPolicy({ConnectionError: Action.BLOCK}, crashes_max=None, block_backoff=for_long)
    more: dict[str, Any] = {
        "policy": policy,
        "producer": MemoryProducer(),
        "dead_letter_topic": "dlq",
        "order": unordered,
    }
    first = Simulation(broker, handler, 1, scheduler=SeededColumns, **more)
    first.step(50)
    first.close()
    assert broker.commits[TOPIC, 0].next_offset == 20
    done.clear()
    second = Simulation(broker, handler, 2, scheduler=SeededColumns, **more)
    second.step(50)
    assert set(done) == {20, 40}
    assert second.counted("ignored_total", reason="finished_before") == 38


def test_columns_by_a_function_of_the_record_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="ordered by partition"):
        Running(broker_of(1), ColumnExecutor(lambda columns: None), order=lambda record: record.value)

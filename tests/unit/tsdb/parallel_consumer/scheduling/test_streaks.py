"""Streaks: waiting records of a lane are handed over with the running one, and recalled whenever a
decision is needed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.servers.logs import wait_until
from tsdb.parallel_consumer import (
    AsyncioExecutor,
    Backoff,
    ConsumerMetrics,
    Context,
    Control,
    Deferral,
    ErrorPolicy,
    Executor,
    Options,
    ParallelConsumer,
    Record,
    ThreadExecutor,
    by_partition,
    unordered,
)
from tsdb.parallel_consumer.executors.record_executors import TURN_S
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.scheduling.completion import Completion
from tsdb.parallel_consumer.scheduling.running import HURRIED_S
from tsdb.parallel_consumer.scheduling.streaks import STREAK_RECORDS_MAX, Streak
from tsdb.parallel_consumer.testing import (
    MemoryBroker,
    MemoryProducer,
    MemorySource,
    SeededScheduler,
    Simulation,
    VirtualClock,
)

TOPIC = "orders"
TOPIC_PARTITION = (TOPIC, 0)
POLICY = ErrorPolicy(attempts_max=3, crashes_max=None, retry_backoff=Backoff(first_s=0.01, longest_s=0.01))


class ByHand(SeededScheduler):
    """Takes a record of a streak on request of the test, and completes none by itself."""

    def __init__(
        self, handler: Callable[[Record], object], clock: VirtualClock, source: random.Random, ends_share: float
    ) -> None:
        super().__init__(handler, clock, source, ends_share)
        self.streaks: list[Streak] = []

    def submit_streak(self, streak: Streak) -> None:
        self.streaks.append(streak)

    def wait(self, timeout_s: float) -> None:
        self._clock.advance(max(timeout_s, 1e-4))


class Bench:
    """One consumer whose streaks the test runs. `taken`: offsets in the order of their begins."""

    def __init__(self, broker: MemoryBroker, **options: Any) -> None:
        self.clock = VirtualClock()
        options = {"policy": POLICY, "producer": MemoryProducer(), "dead_letter_topic": "dlq", **options}
        self.simulation = Simulation(broker, lambda record: None, 1, clock=self.clock, scheduler=ByHand, **options)
        assert isinstance(self.simulation.scheduler, ByHand)
        self.scheduler = self.simulation.scheduler
        self.taken: list[int] = []
        self.simulation.step(2)

    @property
    def streaks(self) -> list[Streak]:
        return self.scheduler.streaks

    def take(self, number: int = 0) -> Completion:
        """Begin the next record of a streak."""
        completion = self.take_or_none(number)
        assert completion is not None, "there was none left"
        return completion

    def take_or_none(self, number: int = 0) -> Completion | None:
        completion = self.streaks[number].take()
        if completion is not None:
            self.taken.append(completion.task.record.offset)
        return completion

    def step(self, count: int = 1, wait_s: float = 0.0) -> None:
        self.simulation.step(count, wait_s=wait_s)

    def alone(self) -> list[int]:
        """Offsets of records handed over one by one and running."""
        return [record.offset for record, _ in self.scheduler.running]


def broker_of(records: int, *, keys: int = 1, partitions: int = 1, value: bytes = b"v") -> MemoryBroker:
    broker = MemoryBroker(partitions, TOPIC)
    for number in range(records):
        broker.append(TOPIC, number % partitions, value, key=b"k%d" % (number // partitions % keys))
    return broker


def test_a_lane_is_handed_over_at_once_and_one_of_it_counts_as_running() -> None:
    bench = Bench(broker_of(5))
    assert len(bench.streaks) == 1
    assert bench.alone() == []
    for offset in range(5):
        completion = bench.take()
        assert completion.task.record.offset == offset
        bench.step()
        assert bench.simulation.core.running == 1
        completion(None)
    assert bench.take_or_none() is None
    bench.step()
    bench.simulation.close()
    assert bench.simulation.core.running == 0
    assert bench.simulation.counted("records_finished_total") == 5


def test_the_executor_may_run_ahead_of_the_completions_seen_by_the_consumer() -> None:
    bench = Bench(broker_of(5))
    for _ in range(3):
        bench.take()(None)
    assert bench.simulation.core.position(TOPIC_PARTITION) == 0
    bench.step()
    assert bench.simulation.core.position(TOPIC_PARTITION) == 3


def test_a_streak_is_bounded_and_the_next_one_follows() -> None:
    bench = Bench(broker_of(STREAK_RECORDS_MAX + 10))
    for _ in range(STREAK_RECORDS_MAX):
        bench.take()(None)
    assert bench.take_or_none() is None
    bench.step()
    assert len(bench.streaks) == 2
    assert bench.take(1).task.record.offset == STREAK_RECORDS_MAX


def test_records_behind_a_failure_wait_until_it_is_resolved() -> None:
    bench = Bench(broker_of(4))
    bench.take()(None)
    bench.take()(ValueError("spoilt"))
    bench.step()
    assert bench.take_or_none() is None
    bench.clock.advance(0.1)
    bench.step()
    again = bench.take(1)
    assert (again.task.record.offset, again.attempt) == (1, 2)
    again(None)
    bench.take(1)(None)
    bench.take(1)(None)
    bench.step()
    bench.simulation.close()
    assert bench.taken == [0, 1, 1, 2, 3]


def test_a_revoked_partition_waits_for_the_running_record_and_starts_no_other() -> None:
    broker = broker_of(10)
    bench = Bench(broker, options=Options(rebalance_drain_s=100.0))
    bench.take()(None)
    running = bench.take()
    waited: list[float] = []

    def wait(timeout_s: float) -> None:
        waited.append(timeout_s)
        assert bench.take_or_none() is None, "a record began in a draining partition"
        running(None)

    bench.scheduler.wait = wait  # type: ignore[method-assign]  # what happens while the drain waits
    bench.simulation.close()
    assert waited
    assert broker.commits[TOPIC_PARTITION].next_offset == 2
    assert bench.simulation.counted("undrained_total") == 0


def test_an_untaken_streak_does_not_delay_a_revocation() -> None:
    broker = broker_of(10)
    bench = Bench(broker)
    began_at = bench.clock.monotonic()
    bench.simulation.close()
    assert bench.take_or_none() is None
    assert bench.clock.monotonic() == began_at
    assert bench.simulation.counted("undrained_total") == 0


def test_taken_records_of_a_lost_partition_complete_late_and_untaken_ones_never_run() -> None:
    broker = broker_of(10)
    bench = Bench(broker)
    first = bench.take()
    broker.kill(bench.simulation.source)
    bench.step()
    assert bench.take_or_none() is None
    first(None)
    bench.step()
    assert bench.simulation.counted("ignored_total", reason="late") == 1
    assert [streak.take() is not None for streak in bench.streaks[1:]] == [True], "not handed over anew"


def test_after_a_pause_by_hand_nothing_begins_and_then_all_does_in_order() -> None:
    bench = Bench(broker_of(6))
    bench.take()
    bench.simulation.core.control = replace(bench.simulation.core.control, paused=True)
    bench.step()
    assert bench.take_or_none() is None
    assert bench.simulation.core.running == 1
    bench.simulation.core.control = replace(bench.simulation.core.control, paused=False)
    bench.step(2)
    assert len(bench.streaks) == 1, "the lane goes on before its record has ended"


def test_untaken_records_are_not_running_after_a_pause() -> None:
    bench = Bench(broker_of(6))
    bench.simulation.core.control = replace(bench.simulation.core.control, paused=True)
    bench.step()
    assert bench.take_or_none() is None
    assert bench.simulation.core.running == 0
    bench.simulation.core.control = replace(bench.simulation.core.control, paused=False)
    bench.step(2)
    assert [bench.take(1).task.record.offset for _ in range(6)] == list(range(6))


@pytest.mark.parametrize(
    "options",
    [
        {"options": Options(commit_records=1)},
        {"control": Control(rate=1_000.0)},
        {"control": Control(key_quota=1_000.0)},
        {"control": Control(newest_wins_s=0.001)},
        {"policy": ErrorPolicy(crashes_max=3)},
        {"order": unordered},
    ],
)
def test_records_run_one_by_one_when_each_needs_a_decision(options: dict[str, Any]) -> None:
    bench = Bench(broker_of(6), **options)
    bench.step(3, wait_s=0.01)
    assert bench.streaks == []
    assert bench.alone()


def test_a_commit_marks_one_record_of_a_streak_as_running() -> None:
    broker = broker_of(6)
    bench = Bench(broker, policy=ErrorPolicy(crashes_max=3), options=Options(write_ahead_s=0.0))
    bench.clock.advance(1.0)
    bench.take()(None)
    bench.take()
    bench.step(2)
    at = broker.commits[TOPIC_PARTITION]
    progress = decode_metadata(at.next_offset, at.metadata, "id-of-orders")
    assert at.next_offset == 1
    assert [one.offset for one in progress.attempts if one.running] == [1]


def test_waiting_records_get_the_slot_of_a_streak_after_two_milliseconds() -> None:
    broker = MemoryBroker(1, TOPIC)
    for key in (b"a", b"a", b"a", b"a", b"b"):
        broker.append(TOPIC, 0, b"", key=key)
    bench = Bench(broker, options=Options(concurrency=1))
    bench.take()(None)
    bench.step()
    assert bench.scheduler.running == [], "its time is not over"
    running = bench.take()
    bench.clock.advance(2 * HURRIED_S)
    bench.step()
    running(None)
    bench.take()(None)
    assert bench.take_or_none() is None
    bench.step()
    assert bench.alone() == [4]
    bench.scheduler.end(0)
    bench.step()
    assert bench.alone() == [3]


def test_a_streak_without_a_thread_keeps_its_slot_under_demand() -> None:
    broker = MemoryBroker(1, TOPIC)
    for key in (b"a", b"a", b"b"):
        broker.append(TOPIC, 0, b"", key=key)
    bench = Bench(broker, options=Options(concurrency=1))
    for _ in range(5):
        bench.clock.advance(2 * HURRIED_S)
        bench.step()
    assert len(bench.streaks) == 1
    assert bench.take().task.record.offset == 0


def test_running_bytes_count_the_largest_record_of_a_streak() -> None:
    broker = MemoryBroker(1, TOPIC)
    for size in (10, 20, 60, 10):
        broker.append(TOPIC, 0, b"v" * size)
    bench = Bench(broker, order=by_partition, options=Options(concurrency=2, running_bytes_max=60))
    bench.take()(None)
    bench.take()(None)
    assert bench.take_or_none() is None, "larger than its share"
    bench.step()
    assert bench.take(1).task.record.offset == 2


def test_a_stall_names_the_running_record_of_a_streak() -> None:
    bench = Bench(broker_of(5), options=Options(stall_after_s=10.0))
    bench.take()(None)
    bench.take()
    bench.step()
    bench.clock.advance(11.0)
    bench.step()
    assert [stall.offset for stall in bench.simulation.core.status.stalls] == [1]


# Runs on real threads and event loops.


def consumer_of(broker: MemoryBroker, executor: Executor, **more: Any) -> ParallelConsumer:
    return ParallelConsumer(
        MemorySource(broker),
        executor,
        policy=POLICY,
        producer=MemoryProducer(),
        dead_letter_topic="dlq",
        metrics=ConsumerMetrics(CollectorRegistry()),
        **more,
    )


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_records_behind_a_deferred_record_wait_for_its_completion(kind: str) -> None:
    broker, deferred, done = broker_of(4), list[Deferral](), list[int]()

    def handle(record: Record, context: Context) -> None:
        done.append(record.offset)
        if record.offset == 1:
            deferred.append(context.defer())

    async def handle_later(record: Record, context: Context) -> None:
        handle(record, context)

    with consumer_of(
        broker, ThreadExecutor(handle, 2) if kind == "threads" else AsyncioExecutor(handle_later)
    ) as consumer:
        wait_until(
            lambda: (
                TOPIC_PARTITION in consumer.status.partitions
                and consumer.status.partitions[TOPIC_PARTITION].position == 1
            )
        )
        assert done == [0, 1]
        deferred[0].complete()
        wait_until(lambda: TOPIC_PARTITION in broker.commits and broker.commits[TOPIC_PARTITION].next_offset == 4)
    assert done == [0, 1, 2, 3]


def test_streaks_take_turns_at_the_threads() -> None:
    begun: list[bytes | None] = []

    def handle(record: Record) -> None:
        if record.offset == 0:
            assert both.wait(60.0)
        begun.append(record.key)
        time.sleep(1.2 * TURN_S)

    both = threading.Event()
    broker = MemoryBroker(1, TOPIC)
    for key in (b"a", b"a", b"a", b"b", b"b", b"b"):
        broker.append(TOPIC, 0, b"", key=key)
    with consumer_of(broker, ThreadExecutor(handle, 1), options=Options(concurrency=2)) as consumer:
        wait_until(lambda: consumer.status.running == 2)
        both.set()
        wait_until(lambda: len(begun) == 6)
    assert begun == [b"a", b"b"] * 3


def test_a_handler_without_an_await_yields_the_loop() -> None:
    seen: list[bytes | None] = []
    held, go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        assert go_on.wait(60.0)

    async def handle(record: Record) -> None:
        seen.append(record.key)
        time.sleep(1.2 * TURN_S)  # A badly written handler must work too.

    broker, executor = MemoryBroker(1, TOPIC), AsyncioExecutor(handle)
    for key in (b"a", b"a", b"a", b"b", b"b", b"b"):
        broker.append(TOPIC, 0, b"", key=key)
    control = Control(paused=True)
    with consumer_of(broker, executor, options=Options(concurrency=2), control=control) as consumer:
        wait_until(lambda: consumer.status.unfinished == 6)
        # Otherwise the loop could begin one of them before the other is submitted.
        executor._loop.spawn(hold)
        assert held.wait(60.0)
        consumer.resume()
        wait_until(lambda: consumer.status.running == 2)
        go_on.set()
        wait_until(lambda: len(seen) == 6)
    assert seen == [b"a", b"b"] * 3

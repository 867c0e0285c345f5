"""A reader that gets nothing although the log has more reads again, by itself, with fakes of the client library that
hang in each way."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from support.counters import sample
from tsdb.log.interface import METRICS, TopicPartition
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.reader import KafkaReader
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.log.kafka.watch import BEYOND_REPAIR_S, LOOK_EVERY_S, STUCK_S, FetchWatch, LogWatch
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.ops.threads import watched_threads

P0, P1 = (METRICS, 0), (METRICS, 1)


class FakeLog:
    """High watermarks by partition. away: whether lookups stay unanswered."""

    def __init__(self) -> None:
        self.high = {0: 0, 1: 0}
        self.away = False

    def high_watermarks(self, topic: str, partitions: list[int]) -> dict[int, int]:
        if self.away:
            raise Unavailable("no broker")
        return {number: self.high[number] for number in partitions}


class FakeConsumer:
    """Consumes what the log has of its assigned partitions; deaf: partitions whose records it does not receive."""

    def __init__(self, log: FakeLog, deaf: set[int]) -> None:
        self._log = log
        self.deaf = deaf
        self.next: dict[int, int] = {}
        self.closed = threading.Event()

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None:
        assert not self.next.keys() & {one.partition for one in partitions}, "assigned twice"
        self.next |= {one.partition: one.offset for one in partitions}

    def incremental_unassign(self, partitions: list[KafkaPartition]) -> None:
        for one in partitions:
            del self.next[one.partition]  # KeyError: the library refuses it too.
            self.deaf.discard(one.partition)  # It fetches the partition anew.

    def pause(self, partitions: list[KafkaPartition]) -> None:
        assert self.next.keys() >= {one.partition for one in partitions}

    resume = pause

    def consume(self, count: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        if self._log.away:
            return found
        for number in self.next.keys() - self.deaf:
            while self.next[number] < self._log.high[number]:
                found.append(_message(number, self.next[number]))
                self.next[number] += 1
        return found

    def close(self) -> None:
        self.closed.set()


def _message(partition: int, offset: int) -> Message:
    at = (TIMESTAMP_LOG_APPEND_TIME, 1_000)
    return Message(topic=METRICS, partition=partition, offset=offset, key=None, value=b"v", timestamp=at)


class FakeGuard:
    """A guard that finds every topic unchanged."""

    def check(self, topic: str) -> None:
        pass

    def confirm(self, topic: str, wait_s: float) -> bool:
        return True

    def check_partition(self, topic: str, partition: int) -> None:
        pass


class Reading:
    """A reader under watch. consumers: all its consumers, the last one in use; deaf: partitions whose records later
    consumers do not receive either.
    """

    def __init__(self, *deaf: int) -> None:
        self.clock, self.log = ManualClock(), FakeLog()
        self.deaf: set[int] = set()
        self.consumers: list[FakeConsumer] = []
        first = self._make()
        first.deaf = set(deaf)
        guard, offsets = cast(TopicGuard, FakeGuard()), cast(KafkaOffsets, self.log)
        self.fetch = Fetch(cast(Consumer, first), guard, offsets, "", self.clock)
        self.watch = FetchWatch(self.fetch, offsets, self.clock)
        self.closed_with: list[Any] = []
        self.reader = KafkaReader(
            self.fetch, guard, {P0: 0, P1: 0}, lambda: cast(Consumer, self._make()), self.closed_with.append
        )

    def _make(self) -> FakeConsumer:
        made = FakeConsumer(self.log, set(self.deaf))
        self.consumers.append(made)
        return made

    def run(self, seconds: float, *, polls_every_s: float = 0.5, writes: tuple[int, ...] = ()) -> None:
        """Polls, and looks of the watch. writes: partitions that get a record before each poll."""
        looked_at = self.clock.monotonic()
        end_at = looked_at + seconds
        while self.clock.monotonic() < end_at:
            for number in writes:
                self.log.high[number] += 1
            self.reader.poll(0.0)
            self.clock.sleep(polls_every_s)
            if self.clock.monotonic() - looked_at >= LOOK_EVERY_S:
                looked_at = self.clock.monotonic()
                try:
                    self.watch.look()
                except Unavailable:
                    assert self.log.away

    @property
    def read(self) -> dict[TopicPartition, int]:
        return dict(self.fetch.next_offsets)


def test_a_consumer_that_gets_nothing_is_replaced_and_all_is_read() -> None:
    reading = Reading(0, 1)
    reading.log.high = {0: 3, 1: 4}
    renewed = sample("tsdb_log_renewals_total", kind="reader")
    reading.run(STUCK_S)
    assert reading.read == {P0: 0, P1: 0}
    reading.run(10.0)
    assert sample("tsdb_log_renewals_total", kind="reader") == renewed + 1
    assert reading.read == {P0: 3, P1: 4}
    assert reading.consumers[0].closed.wait(60.0)
    reading.run(300.0)
    assert len(reading.consumers) == 2, "an idle log is no reason for another one"
    assert reading.watch.stalled() == ""
    reading.reader.close()
    assert reading.closed_with == [reading.consumers[1]]


def test_records_that_came_before_are_read_once() -> None:
    reading = Reading()
    reading.log.high = {0: 3, 1: 4}
    reading.run(5.0)
    reading.consumers[0].deaf = {0, 1}
    reading.log.high = {0: 5, 1: 4}
    reading.run(STUCK_S + 10.0)
    assert reading.consumers[1].next == {0: 5, 1: 4}
    assert reading.read == {P0: 5, P1: 4}


def test_one_deaf_partition_beside_others_is_read_again_without_a_new_consumer() -> None:
    reading = Reading(0)
    reading.log.high[0] = 2
    reading.run(STUCK_S + 10.0, writes=(1,))
    assert reading.read[P0] == 2
    assert len(reading.consumers) == 1


def test_a_partition_that_stays_deaf_has_the_consumer_replaced() -> None:
    reading = Reading()
    reading.consumers[0].deaf = _Sticky({0})
    reading.log.high[0] = 2
    reading.run(3 * STUCK_S, writes=(1,))
    assert reading.read[P0] == 2
    assert len(reading.consumers) == 2


class _Sticky(set[int]):
    """Deaf even after a new assignment."""

    def discard(self, element: object) -> None:
        pass


def test_an_outage_replaces_nothing_however_long_it_is() -> None:
    reading = Reading()
    reading.log.high = {0: 3, 1: 4}
    reading.log.away = True
    reading.run(600.0)
    assert len(reading.consumers) == 1
    assert reading.watch.stalled() == ""
    reading.log.away = False
    reading.run(1.0)
    assert reading.read == {P0: 3, P1: 4}


def test_a_log_at_its_end_is_no_reason() -> None:
    reading = Reading()
    reading.run(600.0)
    assert len(reading.consumers) == 1


def test_markers_at_the_end_of_a_partition_are_no_records() -> None:
    """The high watermark is above the last record where the last offsets are of a transaction's markers."""
    reading = Reading(0)
    reading.log.high[0] = 7
    end = Message(topic=METRICS, partition=0, offset=7, error=KafkaError(KafkaError._PARTITION_EOF))
    taken = iter([[end]])
    consume = reading.consumers[0].consume
    reading.consumers[0].consume = lambda count, timeout: next(taken, None) or consume(count, timeout)  # type: ignore[method-assign]
    reading.run(600.0)
    assert len(reading.consumers) == 1


def test_an_owner_that_does_not_poll_waits_for_nothing() -> None:
    reading = Reading()
    reading.run(5.0)
    reading.log.high[0] = 3
    for _ in range(100):
        reading.clock.sleep(10.0)
        reading.watch.look()
    reading.run(1.0)
    assert len(reading.consumers) == 1
    assert reading.read[P0] == 3


def test_a_paused_partition_is_no_reason_and_is_not_read_by_the_next_consumer() -> None:
    reading = Reading(0, 1)
    reading.log.high = {0: 3, 1: 4}
    reading.reader.pause(*P1)
    reading.run(STUCK_S + 10.0)
    assert reading.read == {P0: 3}
    reading.reader.seek(*P1, 2)
    reading.run(1.0)
    assert reading.read == {P0: 3, P1: 4}


def test_new_consumers_that_do_not_help_end_the_process() -> None:
    reading = Reading(0, 1)
    reading.deaf = {0, 1}
    reading.log.high = {0: 3, 1: 4}
    reading.run(BEYOND_REPAIR_S)
    assert reading.watch.stalled() == ""
    reading.run(10.0)
    assert "no record from 0 on" in reading.watch.stalled()
    assert len(reading.consumers) <= 6, "a new one has its time"


class FakeWatched:
    """Fails at each look as `error`."""

    def __init__(self, error: Exception | None, reason: str = "") -> None:
        self.error = error
        self.reason = reason
        self.looks = threading.Event()

    def look(self) -> None:
        self.looks.set()
        if self.error is not None:
            raise self.error

    def stalled(self) -> str:
        return self.reason


def test_the_watch_goes_on_when_a_look_finds_no_broker() -> None:
    watch, first, second = LogWatch(), FakeWatched(Unavailable("no broker")), FakeWatched(None, "stuck")
    with watched_threads() as failures:
        watch.add(first)
        watch.add(second)
        watch.look()
        assert first.looks.is_set()
        assert second.looks.is_set()
        assert watch.stalled() == "stuck"
        watch.remove(second)
        assert watch.stalled() == ""
        watch.close()
        assert watch.join(60.0)
    assert failures.failure() is None


@pytest.mark.parametrize("close_first", [True, False])
def test_a_watch_that_is_closed_starts_no_thread_again(close_first: bool) -> None:
    watch = LogWatch()
    if not close_first:
        watch.add(FakeWatched(None))
    watch.close()
    watch.add(FakeWatched(None))
    assert watch.join(60.0)

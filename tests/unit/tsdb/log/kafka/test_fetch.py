"""Batches of messages, and records that a fetch holds back, with a consumer whose messages the test sets."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.log.interface import METRICS, SERIES, EndOfLog, RecordBatch, Watermarks
from tsdb.log.kafka.fetch import Fetch, messages_by_partition, to_batch
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.model.clock import ManualClock
from tsdb.model.errors import LostOffsets, Unavailable, WrongTopic


def message(offset: int, value: bytes | None = b"v", *, topic: str = METRICS, partition: int = 0) -> Message:
    return Message(
        topic=f"p.{topic}",
        partition=partition,
        offset=offset,
        key=b"k%d" % offset,
        value=value,
        timestamp=(TIMESTAMP_LOG_APPEND_TIME, 1000 + offset),
    )


def notice(code: int, offset: int = 0, *, partition: int = 0) -> Message:
    return Message(topic=f"p.{METRICS}", partition=partition, offset=offset, error=KafkaError(code))


class FakeConsumer:
    """Gives `messages` once, noting what was assigned."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.assigned: list[tuple[int, int]] = []
        self.asked: list[int] = []

    def consume(self, count: int, timeout: float) -> list[Message]:
        self.asked.append(count)
        given, self.messages = self.messages[:count], self.messages[count:]
        return given

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None:
        self.assigned += [(partition.partition, partition.offset) for partition in partitions]

    def incremental_unassign(self, partitions: list[KafkaPartition]) -> None:
        pass


class FakeGuard:
    """A guard that confirms topics, or does not, as the test sets."""

    confirms = True
    failure: WrongTopic | None = None

    def check(self, topic: str) -> None:
        assert topic == METRICS

    def confirm(self, topic: str, wait_s: float) -> bool:
        assert topic == METRICS
        if self.failure is not None:
            raise self.failure
        return self.confirms


class FakeOffsets:
    """A log that holds [5, 10)."""

    available = True

    def watermarks(self, topic: str, partitions: list[int]) -> dict[int, Watermarks]:
        if not self.available:
            raise Unavailable("no broker")
        return dict.fromkeys(partitions, Watermarks(5, 10))


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def guard() -> FakeGuard:
    return FakeGuard()


@pytest.fixture
def offsets() -> FakeOffsets:
    return FakeOffsets()


@pytest.fixture
def fetch(consumer: FakeConsumer, guard: FakeGuard, offsets: FakeOffsets) -> Fetch:
    fetch = Fetch(cast(Consumer, consumer), cast(TopicGuard, guard), cast(KafkaOffsets, offsets), "p.", ManualClock())
    fetch.own({(METRICS, 0): 5, (METRICS, 1): 0})
    return fetch


def poll(fetch: Fetch) -> list[object]:
    return list(fetch.poll(0.0, 100, 1 << 20))


def test_messages_become_one_batch_a_partition() -> None:
    messages = [message(3), message(4), message(0, topic=SERIES), message(5), message(7, partition=1)]
    groups = messages_by_partition(messages)
    assert {key: [m.offset() for m in group] for key, group in groups.items()} == {
        ("p.metrics", 0): [3, 4, 5],
        ("p.series", 0): [0],
        ("p.metrics", 1): [7],
    }


def test_gaps_nulls_and_keys_survive_the_batch() -> None:
    batch = to_batch(SERIES, 0, [message(3, b"a"), message(5, None), message(9, b"cc")])
    assert batch.offsets.tolist() == [3, 5, 9]
    assert batch.broker_ms.tolist() == [1003, 1005, 1009]
    assert batch.null_values is not None
    assert batch.null_values.tolist() == [False, True, False]
    assert [batch.record(i).value for i in range(3)] == [b"a", None, b"cc"]
    assert [batch.record(i).key for i in range(3)] == [b"k3", b"k5", b"k9"]
    first = batch.first(2)
    assert (first.values, first.keys, first.offsets.tolist()) == (b"a", b"k3k5", [3, 5])


def test_a_batch_without_gaps_counts_its_offsets() -> None:
    batch = to_batch(METRICS, 0, [message(offset) for offset in range(7, 12)])
    assert np.array_equal(batch.offsets, np.arange(7, 12))
    assert batch.offsets.dtype == np.int64


def test_records_wait_until_their_topic_is_confirmed(fetch: Fetch, consumer: FakeConsumer, guard: FakeGuard) -> None:
    consumer.messages = [message(5), message(6)]
    guard.confirms = False
    assert poll(fetch) == []
    assert poll(fetch) == []
    assert consumer.messages == [], "consumed once"
    guard.confirms = True
    (batch,) = poll(fetch)
    assert isinstance(batch, RecordBatch)
    assert batch.offsets.tolist() == [5, 6]


def test_a_partition_given_up_meanwhile_is_not_handed_out(
    fetch: Fetch, consumer: FakeConsumer, guard: FakeGuard
) -> None:
    consumer.messages = [message(5), message(0, partition=1)]
    guard.confirms = False
    poll(fetch)
    fetch.disown([(METRICS, 0)])
    guard.confirms = True
    (batch,) = poll(fetch)
    assert isinstance(batch, RecordBatch)
    assert batch.partition == 1


def test_the_end_comes_after_the_records_before_it(fetch: Fetch, consumer: FakeConsumer) -> None:
    consumer.messages = [message(5), notice(KafkaError._PARTITION_EOF, 6)]
    batch, end = poll(fetch)
    assert isinstance(batch, RecordBatch)
    assert end == EndOfLog(METRICS, 0, 6)


@pytest.mark.parametrize(
    ("at", "code", "reason"),
    [
        (2, KafkaError._AUTO_OFFSET_RESET, "below_low_watermark"),
        (11, KafkaError.OFFSET_OUT_OF_RANGE, "offset_above_end"),
        (7, KafkaError._LOG_TRUNCATION, "log_truncated"),
    ],
)
def test_a_refused_offset_is_lost_offsets(
    fetch: Fetch, consumer: FakeConsumer, at: int, code: int, reason: str
) -> None:
    fetch.own({(METRICS, 0): at})
    consumer.messages = [notice(code), message(0, partition=1)]
    (batch,) = poll(fetch)
    assert isinstance(batch, RecordBatch), "what came beside it is not lost"
    with pytest.raises(LostOffsets) as lost:
        poll(fetch)
    assert lost.value.reason == reason
    assert poll(fetch) == []


def test_a_refused_offset_of_a_topic_made_again_is_no_lost_offset(
    fetch: Fetch, consumer: FakeConsumer, guard: FakeGuard
) -> None:
    fetch.own({(METRICS, 0): 11})
    consumer.messages = [notice(KafkaError.OFFSET_OUT_OF_RANGE)]
    guard.confirms = False
    assert poll(fetch) == []
    assert poll(fetch) == [], "nothing is known of the topic yet"
    guard.failure = WrongTopic("made again", reason="topic_recreated")
    with pytest.raises(WrongTopic):
        poll(fetch)


def test_a_refused_offset_that_is_there_is_fetched_again(fetch: Fetch, consumer: FakeConsumer) -> None:
    consumer.messages = [notice(KafkaError._AUTO_OFFSET_RESET)]
    assert poll(fetch) == []
    assert poll(fetch) == []
    assert consumer.assigned == [(0, 5)]


def test_a_refused_offset_waits_for_a_broker_to_ask(fetch: Fetch, consumer: FakeConsumer, offsets: FakeOffsets) -> None:
    fetch.own({(METRICS, 0): 2})
    consumer.messages = [notice(KafkaError._AUTO_OFFSET_RESET)]
    offsets.available = False
    assert poll(fetch) == []
    assert poll(fetch) == []
    offsets.available = True
    with pytest.raises(LostOffsets):
        poll(fetch)


@pytest.mark.parametrize(
    "code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART]
)
def test_trouble_that_passes_is_no_error_of_a_poll(fetch: Fetch, consumer: FakeConsumer, code: int) -> None:
    consumer.messages = [Message(error=KafkaError(code)), notice(code)]
    assert poll(fetch) == []


def test_a_member_that_polled_too_late_hears_of_it(fetch: Fetch, consumer: FakeConsumer) -> None:
    consumer.messages = [Message(error=KafkaError(KafkaError._MAX_POLL_EXCEEDED))]
    with pytest.raises(Unavailable) as stale:
        poll(fetch)
    assert stale.value.reason == "stale_member"


def test_records_that_came_with_an_error_go_out_before_it(fetch: Fetch, consumer: FakeConsumer) -> None:
    consumer.messages = [Message(error=KafkaError(KafkaError._MAX_POLL_EXCEEDED)), message(5), message(6)]
    (batch,) = poll(fetch)
    assert isinstance(batch, RecordBatch)
    assert batch.offsets.tolist() == [5, 6]
    with pytest.raises(Unavailable):
        poll(fetch)
    assert poll(fetch) == []


def test_polls_request_fewer_records_when_records_are_large(fetch: Fetch, consumer: FakeConsumer) -> None:
    consumer.messages = [message(5, bytes(100_000))]
    poll(fetch)
    fetch.poll(0.0, 1000, 1_000_000)
    assert consumer.asked[-1] == 10

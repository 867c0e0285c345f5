"""A group member whose commits cannot be read when partitions come, and what it may commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.log.interface import METRICS, SERIES, Position, TopicPartition
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.group import KafkaGroup
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.model.errors import Unavailable

PARTITION = (METRICS, 0)


class FakeConsumer:
    """Runs the callbacks queued in `due` within consume, as the library does."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[Any, list[KafkaPartition]], None]] = {}
        self.due: list[str] = []
        self.subscriptions = 0
        self.assigned: list[int] = []
        self.known = {"p.metrics"}  # Topics whose leaders it knows: what it subscribes to.
        self.assigned_unknown: set[str] = set()
        self.committed_fails = False
        self.commits: list[KafkaPartition] = []

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[KafkaPartition]], None]) -> None:
        assert topics == ["p.metrics"]
        self.callbacks = callbacks
        self.subscriptions += 1

    def unsubscribe(self) -> None:
        self.due.append("on_revoke")

    def consume(self, count: int, timeout: float) -> list[Any]:
        due, self.due = self.due, []
        for name in due:
            self.callbacks[name](self, [KafkaPartition("p.metrics", 0)])
        return []

    def committed(self, partitions: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        if self.committed_fails:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return [KafkaPartition(p.topic, p.partition, 7, "noted") for p in partitions]

    def list_topics(self, topic: str, timeout: float) -> None:
        self.known.add(topic)

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None:
        self.assigned_unknown |= {partition.topic for partition in partitions} - self.known
        self.assigned += [partition.offset for partition in partitions]

    def commit(self, *, offsets: list[KafkaPartition], asynchronous: bool) -> list[KafkaPartition]:
        assert not asynchronous
        self.commits += offsets
        return offsets

    def close(self) -> None:
        self.due.append("on_revoke")
        self.consume(1, 0)


class FakeGuard:
    """A guard that finds every topic unchanged."""

    def partitions(self, topic: str) -> int:
        return 1

    def check(self, topic: str) -> None:
        pass


class Listener:
    """Records every callback of the group."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        self.told.append(("assigned", dict(committed)))
        return {partition: at.next_offset if at else 0 for partition, at in committed.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.told.append(("revoked", list(partitions)))

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.told.append(("lost", list(partitions)))


@pytest.fixture
def consumer() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def alone(consumer: FakeConsumer) -> KafkaGroup:
    guard = cast(TopicGuard, FakeGuard())
    fetch = Fetch(cast(Consumer, consumer), guard, cast(KafkaOffsets, None), "p.")
    return KafkaGroup(fetch, guard, "p.", 1.0)


@pytest.fixture
def group(alone: KafkaGroup, listener: Listener) -> KafkaGroup:
    alone.join([METRICS], listener)
    return alone


def test_partitions_start_at_the_listeners_offsets(
    group: KafkaGroup, consumer: FakeConsumer, listener: Listener
) -> None:
    consumer.due = ["on_assign"]
    assert group.poll(0) == []
    assert listener.told == [("assigned", {PARTITION: Position(7, "noted")})]
    assert consumer.assigned == [7]
    assert group.assigned() == {PARTITION}


def test_followers_are_assigned_once_their_leaders_are_known(
    alone: KafkaGroup, consumer: FakeConsumer, listener: Listener
) -> None:
    alone.join([METRICS], listener, followers={SERIES: METRICS})
    consumer.due = ["on_assign"]
    alone.poll(0)
    assert alone.assigned() == {PARTITION, (SERIES, 0)}
    assert consumer.assigned_unknown == set(), "these would be read a second later"


def test_partitions_without_readable_commits_are_given_back_and_taken_again(
    group: KafkaGroup, consumer: FakeConsumer, listener: Listener
) -> None:
    consumer.due, consumer.committed_fails = ["on_assign"], True
    with pytest.raises(Unavailable):
        group.poll(0)
    assert consumer.subscriptions == 2
    group.poll(0)  # The revocation that follows names no partition of the listener.
    assert listener.told == []
    assert group.assigned() == frozenset()
    consumer.due, consumer.committed_fails = ["on_assign"], False
    group.poll(0)
    assert listener.told == [("assigned", {PARTITION: Position(7, "noted")})]


def test_a_lost_partition_cannot_be_committed(group: KafkaGroup, consumer: FakeConsumer, listener: Listener) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    group.commit({PARTITION: Position(9, "mine")})
    consumer.due = ["on_lost"]
    group.poll(0)
    assert listener.told[-1] == ("lost", [PARTITION])
    with pytest.raises(Unavailable) as stale:
        group.commit({PARTITION: Position(10)})
    assert stale.value.reason == "stale_member"
    assert [(commit.offset, commit.metadata) for commit in consumer.commits] == [(9, "mine")]


def test_leaving_revokes_within_the_call(group: KafkaGroup, consumer: FakeConsumer, listener: Listener) -> None:
    consumer.due = ["on_assign"]
    group.poll(0)
    group.leave()
    assert listener.told[-1] == ("revoked", [PARTITION])
    assert group.assigned() == frozenset()

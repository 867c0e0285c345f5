"""A source of a Kafka group with fake consumers: stuck ones are replaced, commits confirmed, topic ids compared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from support.consumer.topic_ids import FakeTopicAdmin
from tsdb.parallel_consumer import CommitFailed, ConsumerError, TopicRecreated
from tsdb.parallel_consumer.kafka import KafkaSource
from tsdb.parallel_consumer.kafka.incarnations import CHECK_EVERY_S, GONE_AFTER_S, Incarnations
from tsdb.parallel_consumer.kafka.progress import StallDetector
from tsdb.parallel_consumer.kafka.topics import TopicFacts
from tsdb.parallel_consumer.record import Position, TopicPartition
from tsdb.parallel_consumer.testing import VirtualClock

CONFIG = {"bootstrap.servers": "h:1", "group.id": "g"}
P0 = ("t", 0)


class Notice:
    """A message of the library that tells an error."""

    def __init__(self, code: int) -> None:
        self._code = code

    def error(self) -> KafkaError:
        return KafkaError(self._code)

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0


class FakeConsumer:
    """Runs the callbacks queued in `due` within consume."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[Any, list[KafkaPartition]], None]] = {}
        self.due: list[str] = []
        self.notices: list[Notice] = []
        self.stored: tuple[int, str] = (3, "")
        self.refusal: int | None = None
        self.closed = threading.Event()
        self.synchronous = 0

    def subscribe(self, topics: list[str], **callbacks: Callable[[Any, list[KafkaPartition]], None]) -> None:
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.callbacks = {}

    def consume(self, count: int, timeout: float) -> list[Any]:
        due, self.due = self.due, []
        for name in due:
            self.callbacks[name](self, [KafkaPartition("t", 0)])
        notices, self.notices = self.notices, []
        return notices

    def committed(self, partitions: list[KafkaPartition], timeout: float) -> list[KafkaPartition]:
        return [KafkaPartition("t", 0, *self.stored)]

    def commit(self, *, offsets: list[KafkaPartition], asynchronous: bool) -> list[KafkaPartition] | None:
        self.synchronous += not asynchronous
        if self.refusal is None:
            (one,) = offsets
            self.stored = (one.offset, one.metadata or "")
        elif not asynchronous:
            raise KafkaException(KafkaError(self.refusal))
        return None if asynchronous else offsets

    def incremental_assign(self, partitions: list[KafkaPartition]) -> None:
        pass

    def close(self) -> None:
        self.due = ["on_revoke"]
        self.consume(1, 0)
        self.closed.set()


class FakeProgress(StallDetector):
    """Finds the reason that the test has set, once."""

    why = ""

    def stuck(self, *, has_partitions: bool) -> str:
        why, self.why = self.why, ""
        return why


class FakeSource(KafkaSource):
    """A source over fake consumers, which has joined its group."""

    def __init__(self, listener: Listener, topic: str = "t") -> None:
        self.consumers: list[FakeConsumer] = []
        self.clock = VirtualClock()
        super().__init__(CONFIG, [topic])
        self.progress = FakeProgress(CONFIG)
        self._progress = self.progress
        self.admin = FakeTopicAdmin(t="first")
        self._incarnations = Incarnations(self._config, self._names, clock=self.clock, admin=self.admin)
        self.start(listener)
        self._joined = True
        self._subscribe()

    def _new_consumer(self) -> Any:
        self.consumers.append(FakeConsumer())
        return self.consumers[-1]

    def _facts_of(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        return {topic: TopicFacts(str(self.admin.answers[topic]), 1) for topic in topics}


class Listener:
    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        self.told.append(("assigned", dict(starts)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("revoked", list(partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("lost", list(partitions)))


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def source(listener: Listener) -> FakeSource:
    source = FakeSource(listener)
    source.consumers[0].due = ["on_assign"]
    source.poll(0.0, 1)
    return source


def test_a_stuck_consumer_is_replaced_and_its_partitions_are_lost_and_assigned_again(
    source: FakeSource, listener: Listener
) -> None:
    source.progress.why = "a test"
    source.poll(0.0, 1)
    assert listener.told == [("assigned", {P0: Position(3)}), ("lost", [P0])]
    first, second = source.consumers
    assert first.closed.wait(60.0)
    second.due = ["on_assign"]
    source.poll(0.0, 1)
    for late in ("on_assign", "on_revoke", "on_lost"):
        first.due = [late]
        first.consume(1, 0)
    assert [kind for kind, _ in listener.told] == ["assigned", "lost", "assigned"]
    assert set(source.owned) == {P0}


def test_a_commit_is_confirmed_without_the_call_that_may_not_return(source: FakeSource) -> None:
    source.commit({P0: Position(4, "noted")})
    assert source.consumers[0].stored == (4, "noted")
    assert source.consumers[0].synchronous == 0


def test_a_refused_commit_has_the_coordinators_reason(source: FakeSource) -> None:
    source.consumers[0].refusal = KafkaError.ILLEGAL_GENERATION
    with pytest.raises(CommitFailed) as refused:
        source.commit({P0: Position(4)})
    assert refused.value.reason == "stale_member"


def test_commits_while_the_consumer_closes_are_not_read_back(source: FakeSource, listener: Listener) -> None:
    (consumer,) = source.consumers
    listener.on_revoked = lambda partitions: source.commit({P0: Position(9)})  # type: ignore[method-assign]
    source.close()
    assert consumer.stored == (9, "")
    assert consumer.synchronous == 1


def recreate(source: FakeSource) -> None:
    source.admin.answers["t"] = "second"
    source.clock.advance(CHECK_EVERY_S)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_an_offset_that_is_gone_with_its_topic_is_told_as_a_topic_made_again(source: FakeSource, code: int) -> None:
    recreate(source)
    source.consumers[0].notices = [Notice(code)]
    with pytest.raises(TopicRecreated, match="t was deleted and made again"):
        source.poll(0.0, 1)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_an_offset_that_is_gone_from_its_topic_is_told_as_such(source: FakeSource, code: int) -> None:
    source.clock.advance(CHECK_EVERY_S)
    source.consumers[0].notices = [Notice(code)]
    with pytest.raises(ConsumerError) as ended:
        source.poll(0.0, 1)
    assert ended.value.reason == "lost_offsets"


def test_a_topic_recreated_between_two_assignments_ends_the_consumer_before_it_is_read(
    source: FakeSource, listener: Listener
) -> None:
    (consumer,) = source.consumers
    consumer.due = ["on_revoke"]
    source.poll(0.0, 1)
    recreate(source)
    consumer.due = ["on_assign"]
    with pytest.raises(TopicRecreated, match=r"topic t was deleted and made again .* was first and is second"):
        source.poll(0.0, 1)
    assert [kind for kind, _ in listener.told] == ["assigned", "revoked"]
    assert not source.owned


def test_a_topic_recreated_after_its_partitions_were_given_back_ends_the_consumer(source: FakeSource) -> None:
    source.consumers[0].due = ["on_revoke"]
    source.poll(0.0, 1)
    recreate(source)
    source.poll(0.0, 1)
    with pytest.raises(TopicRecreated):
        source.poll(0.0, 1)


def test_a_topic_deleted_after_its_partitions_were_given_back_ends_the_consumer(source: FakeSource) -> None:
    source.consumers[0].due = ["on_revoke"]
    source.poll(0.0, 1)
    source.admin.answers["t"] = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    for _ in range(2):
        source.clock.advance(GONE_AFTER_S)
        source.poll(0.0, 1)
    with pytest.raises(ConsumerError, match="topic t") as gone:
        source.poll(0.0, 1)
    assert gone.value.reason == "topic_gone"


def test_a_recreated_topic_of_a_pattern_is_read_with_its_new_id(listener: Listener) -> None:
    source = FakeSource(listener, "^t$")
    (consumer,) = source.consumers
    for due in ("on_assign", "on_revoke"):
        consumer.due = [due]
        source.poll(0.0, 1)
    recreate(source)
    consumer.due = ["on_assign"]
    source.poll(0.0, 1)
    assert [kind for kind, _ in listener.told] == ["assigned", "revoked", "assigned"]
    assert source.topic_id("t") == "second"

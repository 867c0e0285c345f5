"""Group member over Kafka's consumer groups: incremental rebalance, synchronous commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.log.checks import check_commit, check_followers, with_followers
from tsdb.log.interface import (
    POLL_BYTES_MAX,
    POLL_RECORDS_MAX,
    Event,
    GroupListener,
    Position,
    TopicPartition,
)
from tsdb.log.kafka.config import Config
from tsdb.log.kafka.errors import to_error, translate_kafka_errors
from tsdb.log.kafka.fetch import Fetch
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.model.errors import TsdbError

# A member learns of a rebalance from the answer to its next heartbeat: other members wait for that.
HEARTBEAT_MS = 500


def group_config(session_s: float) -> Config:
    """Settings of a member, added to the consumer's."""
    return {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(session_s * 1000),
        "heartbeat.interval.ms": HEARTBEAT_MS,
        # The library waits half of it before it connects to the coordinator: a second would be 0.5 s of each start.
        "reconnect.backoff.ms": 100,
    }


class KafkaGroup:
    """Group. If the commits of new partitions cannot be read, it gives the partitions back and joins again."""

    def __init__(self, fetch: Fetch, guard: TopicGuard, prefix: str, timeout_s: float) -> None:
        self._fetch = fetch
        self._guard = guard
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._topics: list[str] = []
        self._followers: Mapping[str, str] = {}
        self._listener: GroupListener | None = None
        self._failed: TsdbError | None = None  # Error of an assignment that could not be taken.
        self._left = False

    def join(
        self, topics: Sequence[str], listener: GroupListener, *, followers: Mapping[str, str] | None = None
    ) -> None:
        self._followers = followers or {}
        check_followers(topics, self._followers)
        for topic in (*topics, *self._followers):
            self._guard.partitions(topic)  # Raises for a missing topic.
        self._topics = [self._prefix + topic for topic in topics]
        self._listener = listener
        self._subscribe()

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        events = self._fetch.poll(timeout_s, max_records, max_bytes)
        if self._failed is not None:
            error, self._failed = self._failed, None
            with translate_kafka_errors("leaving the group"):
                self._fetch.consumer.unsubscribe()
            self._subscribe()
            raise error
        return events

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self._fetch.assign((topic, partition), next_offset)

    def pause(self, topic: str, partition: int) -> None:
        self._fetch.pause((topic, partition))

    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self._fetch.owned)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        # Kafka checks only that the member is current, not that it owns the partition.
        check_commit(positions, self._fetch.owned)
        offsets = [
            KafkaPartition(self._prefix + topic, partition, at.next_offset, at.metadata)
            for (topic, partition), at in positions.items()
        ]
        if not offsets:
            return
        with translate_kafka_errors("commit"):
            done = self._fetch.consumer.commit(offsets=offsets, asynchronous=False)
        for answer in done or []:
            if answer.error is not None:
                raise to_error(answer.error, f"commit of {answer.topic}, partition {answer.partition}")

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        if not partitions:
            return {}
        requested = [self._fetch.kafka_partition(partition) for partition in partitions]
        with translate_kafka_errors("commits of the group"):
            answers = self._fetch.consumer.committed(requested, timeout=self._timeout_s)
        found: dict[TopicPartition, Position | None] = {}
        for partition, answer in zip(self._fetch.ours(answers), answers, strict=True):
            if answer.error is not None:
                raise to_error(answer.error, f"commits of {answer.topic}, partition {answer.partition}")
            found[partition] = Position(answer.offset, answer.metadata or "") if answer.offset >= 0 else None
        return found

    def leave(self) -> None:
        if not self._left:
            self._left = True
            with translate_kafka_errors("leaving the group"):
                self._fetch.consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _subscribe(self) -> None:
        with translate_kafka_errors("joining the group"):
            self._fetch.consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def _on_assign(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        assert self._listener is not None, "no assignment before join"
        if not partitions:
            return
        ours = with_followers(self._fetch.ours(partitions), self._followers)
        try:
            self._find_followers()
            starts = self._listener.on_assigned(self.committed(ours))
        except TsdbError as error:
            # Without its commits a partition has no start. The library takes the partition anyway when this returns;
            # its records are dropped, and `poll` joins the group again.
            self._failed = error
            return
        assert set(starts) == set(ours), f"a start for each of {ours}; got {dict(starts)}"
        consumer.incremental_assign([self._fetch.kafka_partition(tp, offset) for tp, offset in starts.items()])
        self._fetch.own(starts)

    def _on_revoke(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        assert self._listener is not None, "no revocation before join"
        going = self._held(partitions)
        try:
            if going:
                # Commit these partitions before this returns: afterwards the member id is not valid for them.
                self._listener.on_revoked(going)
        finally:
            self._give_up(consumer, partitions, going)

    def _on_lost(self, consumer: Consumer, partitions: list[KafkaPartition]) -> None:
        assert self._listener is not None, "no loss before join"
        gone = self._held(partitions)
        self._give_up(consumer, partitions, gone)
        if gone:
            self._listener.on_lost(gone)

    def _find_followers(self) -> None:
        """Load the followers' leaders. The library knows those of subscribed topics; others would come 1 s later."""
        for topic in self._followers:
            with translate_kafka_errors(f"topic {topic}"):
                self._fetch.consumer.list_topics(self._prefix + topic, timeout=self._timeout_s)

    def _held(self, partitions: list[KafkaPartition]) -> list[TopicPartition]:
        ours = with_followers(self._fetch.ours(partitions), self._followers)
        return [partition for partition in ours if partition in self._fetch.owned]

    def _give_up(self, consumer: Consumer, named: list[KafkaPartition], going: Sequence[TopicPartition]) -> None:
        self._fetch.disown(going)
        if self._followers:
            # The library unassigns only the partitions it named; it does not know their followers.
            known = set(self._fetch.ours(named))
            also = [self._fetch.kafka_partition(partition) for partition in going if partition not in known]
            consumer.incremental_unassign([*named, *also])

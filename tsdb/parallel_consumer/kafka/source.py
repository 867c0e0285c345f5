"""Kafka source: implements Source over a consumer group, with incremental rebalances.

The consumer never resets an offset by itself. An offset that the log no longer has ends it with an error that names the
offset.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.kafka_clients import new_consumer
from tsdb.parallel_consumer.clock import SystemClock
from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError, InvalidConfig
from tsdb.parallel_consumer.kafka.errors import (
    commit_failed,
    ends_the_consumer,
    ends_the_member,
    is_lost_offset,
    is_topic_gone,
    member_ended,
    to_error,
)
from tsdb.parallel_consumer.kafka.incarnations import Incarnations, recreated
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.progress import StallDetector
from tsdb.parallel_consumer.kafka.records import message_columns, records_of, runs_by_partition
from tsdb.parallel_consumer.kafka.settings import check_drains, consumer_settings
from tsdb.parallel_consumer.kafka.start import EARLIEST, TIME, Start, StartRule
from tsdb.parallel_consumer.kafka.topics import TopicFacts, TopicLookup
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.record import Position, Record, TopicPartition
from tsdb.parallel_consumer.source import Polled, PolledColumns, SourceListener

TIMEOUT_S = 10.0
CONFIRM_WAIT_S = 1.0  # A healthy answer takes less time. Unconfirmed records wait for the next poll.
HELD_MAX = 10_000  # A member polls even while records wait for a confirmation, and each poll may return one.
PATTERN = "^"  # A topic with this prefix is a pattern, as in the client library.


class KafkaSource:
    """Implements ColumnSource. config: settings of the client library, at least bootstrap.servers and group.id.

    A member that is stuck after an outage, although brokers answer, is replaced: its partitions are lost to the
    listener, and assigned again.

    topics: names, and patterns: regular expressions that begin with "^". New topics of a pattern are read once the
    metadata lists them (topic.metadata.refresh.interval.ms, here 10 s). start: first record of a partition without a
    commit of the group: "earliest" (its first record), "latest" (its end), an aware datetime or milliseconds since the
    epoch (the first record at or after it).

    The constructor raises InvalidConfig for settings that contradict the consumer. `start` and `poll` raise
    ConsumerError: misused, lost_offsets, topic_gone, denied, kafka; Fenced when another member has its
    group.instance.id; TopicRecreated: no record of the new topic is returned, and nothing is committed to it. While no
    broker answers, polls return nothing, and a warning is logged.
    """

    def __init__(self, config: Mapping[str, object], topics: Sequence[str], *, start: Start = EARLIEST) -> None:
        self._rule = StartRule.of(start)
        self._config = consumer_settings(config, self._rule)
        self._topics = _checked(topics)
        self._names = [topic for topic in self._topics if not topic.startswith(PATTERN)]
        self._lookup = TopicLookup(self._config, self._names)
        self._log = LimitedLog(SystemClock())
        self._consumer: Any = None  # The library's types are not complete.
        self._joined = False
        self._listener: SourceListener | None = None
        self._incarnations = Incarnations(self._config, self._names)
        self._topics_seen: dict[str, TopicFacts] = {}  # Facts of each topic when it was last learned.
        self._first_sizes: dict[str, int] = {}  # Number of partitions of each topic when this member first read it.
        self._held: list[Any] = []  # Records and ends of partitions that were consumed and are not confirmed yet.
        self._owned: set[TopicPartition] = set()
        self._failed: BaseException | None = None
        self._progress = StallDetector(self._config)
        self._closing = False

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._consumer = self._new_consumer()

    def check_drains(self, drains_s: Mapping[str, float]) -> None:
        check_drains(self._config, drains_s)

    def topic_id(self, topic: str) -> str:
        return self._topics_seen[topic].id

    def found(self, timeout_s: float) -> bool:
        """Whether a broker has answered and the topics exist; nothing is read before. Waits up to timeout_s."""
        if not self._joined:
            found = self._lookup.answer(timeout_s)
            self._joined = found is not None
            if found is not None:
                self._progress.sizes = {topic: facts.partitions for topic, facts in found.items()}
                self._subscribe()
        return self._joined

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        messages, ends = self._consume(timeout_s, records_max)
        records: list[Record] = []
        for topic_partition, part in runs_by_partition(messages):
            records += records_of(topic_partition, part)
            self._progress.moved(topic_partition, records[-1].offset + 1)
        return Polled(records, ends)

    def poll_columns(self, timeout_s: float, records_max: int) -> PolledColumns:
        messages, ends = self._consume(timeout_s, records_max)
        by_partition: dict[TopicPartition, list[Any]] = {}
        for topic_partition, part in runs_by_partition(messages):
            by_partition.setdefault(topic_partition, []).extend(part)
        for topic_partition, found in by_partition.items():
            self._progress.moved(topic_partition, found[-1].offset() + 1)
        return PolledColumns(
            [message_columns(topic_partition, found) for topic_partition, found in by_partition.items()], ends
        )

    def _consume(self, timeout_s: float, records_max: int) -> tuple[list[Any], dict[TopicPartition, int]]:
        """Confirmed messages that are records, and partitions read to their end."""
        if not self._joined and not self.found(timeout_s):
            return [], {}
        self._incarnations.check(reading=bool(self._held))
        why = self._progress.stuck(has_partitions=bool(self._owned))
        if why:
            self._renew(why)
        messages = self._consume_some(0.0 if self._held else timeout_s, max(1, records_max - len(self._held)))
        if self._failed is not None:
            self._join_again()
            return [], {}
        self._held += [message for message in messages if not self._noted(message)]
        if not self._held:
            return [], {}
        if not self._incarnations.confirm(CONFIRM_WAIT_S):
            # A later assignment of the same partition begins at its own position.
            self._held = [message for message in self._held if _place(message) in self._owned]
            return [], {}
        messages, self._held = self._held[:records_max], self._held[records_max:]
        ends = {_place(message): message.offset() for message in messages if message.error() is not None}
        for topic_partition, end in ends.items():
            self._progress.moved(topic_partition, end)
        return ([message for message in messages if message.error() is None] if ends else messages), ends

    def _consume_some(self, timeout_s: float, records_max: int) -> list[Any]:
        if len(self._held) >= HELD_MAX:
            return []
        # With a timeout consume() waits for the full count. So take available messages first, and wait for one message
        # if nothing is available.
        messages: list[Any] = self._consumer.consume(records_max, 0)
        if not messages and timeout_s > 0:
            messages = self._consumer.consume(1, timeout_s)
        return messages

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._consumer.pause([KafkaPartition(*topic_partition) for topic_partition in partitions])
        self._progress.removed(partitions)
        self._drop_held(partitions)

    def resume(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        partitions = [KafkaPartition(*topic_partition, offset) for topic_partition, offset in next_offsets.items()]
        self._consumer.resume(partitions)
        self._progress.assigned(next_offsets)
        # Records fetched before the pause are gone, and without a seek the next fetch waits for a second.
        for partition in partitions:
            self._consumer.seek(partition)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        unassigned = positions.keys() - self._owned
        if unassigned:
            # Kafka checks that the member is current, not that it owns the partition.
            raise CommitFailed(f"not assigned any more: {sorted(unassigned)}", reason="stale_member")
        self._incarnations.look(reading=False)
        changed = self._incarnations.changed
        current = {
            topic_partition: at for topic_partition, at in positions.items() if topic_partition[0] not in changed
        }
        if current:
            self._commit(current)
        if len(current) < len(positions):
            self.check_topics()

    def check_topics(self) -> None:
        """Raise TopicRecreated, or ConsumerError (topic_gone), when an assigned topic is known to be another one."""
        self._incarnations.check(reading=False)

    @property
    def owned(self) -> Collection[TopicPartition]:
        """Partitions assigned at this moment."""
        return self._owned

    def group_metadata(self) -> Any:
        """Group metadata of the member, in the form a transactional producer of the same library accepts."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        if self._consumer is not None:
            self._closing = True
            try:
                self._consumer.close()  # Calls on_revoke, which may still commit.
            finally:
                self._consumer = None

    def _commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        offsets = [
            KafkaPartition(*topic_partition, at.next_offset, at.metadata) for topic_partition, at in positions.items()
        ]
        try:
            # The library's synchronous commit waits without a bound for a coordinator, and no other call of the
            # consumer returns meanwhile. So the commit is sent, then read back; the coordinator answers in order.
            if not self._closing:  # A consumer that closes reads no commits back.
                self._consumer.commit(offsets=offsets, asynchronous=True)
                stored = self._consumer.committed(offsets, timeout=TIMEOUT_S)
                if all(_is_stored(answer, positions) for answer in stored):
                    return
            # The coordinator has answered with a refusal; this call returns its reason.
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if ends_the_member(error.args[0]):
                raise self._ended(error.args[0]) from error
            raise commit_failed(error.args[0]) from error
        for answer in answers or ():
            if answer.error is not None:
                raise commit_failed(answer.error)

    def _new_consumer(self) -> Any:
        try:
            return new_consumer(with_logger(self._config))
        except KafkaException as error:
            raise InvalidConfig(
                f"the client library refuses the settings: {error.args[0].str()}", reason="setting"
            ) from error

    def _renew(self, why: str) -> None:
        """Join with another consumer. The old one leaves the group on a separate thread: its close may take long."""
        self._log.log(logging.WARNING, "renewed", None, "consumer replaced, as it is stuck: %s", why)
        old, lost = self._consumer, sorted(self._owned)
        self._consumer, self._failed = self._new_consumer(), None
        threading.Thread(target=_closed, args=(old,), name="consumer-close", daemon=True).start()
        self._disown(lost)
        self._progress.renewed()
        if lost:
            assert self._listener is not None, "partitions before start"
            self._listener.on_lost(lost)
        self._subscribe()

    def _subscribe(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        except KafkaException as error:
            raise InvalidConfig(f"topics {', '.join(self._topics)}: {error.args[0].str()}", reason="setting") from error

    def _ended(self, error: KafkaError) -> ConsumerError:
        return member_ended(error, self._config.get("group.id"), self._config.get("group.instance.id"))

    def _join_again(self) -> None:
        """Partitions whose commits could not be read have no start position: give them up and join the group again."""
        error, self._failed = self._failed, None
        self._consumer.unsubscribe()
        self._subscribe()
        if not isinstance(error, KafkaException):
            assert error is not None, "joined again without a reason"
            raise error

    def _on_assign(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        if consumer is not self._consumer:
            return  # It was replaced.
        try:
            self._learn_ids(partitions)
            starts = self._starts(consumer, partitions)
        except BaseException as error:
            self._failed = error
            return
        assert self._listener is not None, "partitions before start"
        consumer.incremental_assign(
            [KafkaPartition(*topic_partition, at.next_offset) for topic_partition, at in starts.items()]
        )
        self._owned.update(starts)
        self._progress.assigned({topic_partition: at.next_offset for topic_partition, at in starts.items()})
        self._watch_owned()
        if starts:
            self._listener.on_assigned(starts)

    def _starts(self, consumer: Any, partitions: list[KafkaPartition]) -> dict[TopicPartition, Position]:
        starts: dict[TopicPartition, Position] = {}
        fresh: list[TopicPartition] = []
        for answer in consumer.committed(partitions, timeout=TIMEOUT_S) if partitions else ():
            if answer.error is not None:
                raise KafkaException(answer.error)
            topic_partition = (answer.topic, answer.partition)
            if answer.offset != OFFSET_INVALID and answer.offset >= 0:
                starts[topic_partition] = Position(answer.offset, answer.metadata or "")
            else:
                fresh.append(topic_partition)
        # All records of a partition that was added while its topic is read are new; "latest" would skip the first ones.
        added = [
            at for at in fresh if at[1] >= self._first_sizes.setdefault(at[0], self._topics_seen[at[0]].partitions)
        ]
        offsets = self._rule.offsets(consumer, [at for at in fresh if at not in added], TIMEOUT_S)
        if added:
            rule = self._rule if self._rule.name == TIME else StartRule(EARLIEST)
            offsets |= rule.offsets(consumer, added, TIMEOUT_S)
        return starts | {topic_partition: Position(offset) for topic_partition, offset in offsets.items()}

    def _learn_ids(self, partitions: list[KafkaPartition]) -> None:
        """Look up the ids of topics without an assigned partition: a topic may have been re-created since the last
        lookup. Raises TopicRecreated for a topic that must exist.
        """
        new = {at.topic for at in partitions} - {topic for topic, _ in self._owned}
        for topic, facts in self._facts_of(new).items():
            before = self._topics_seen.get(topic)
            # With the protocol "consumer" a group takes the partitions of a deleted topic back at once, and assigns
            # those of the new one before any check of the id.
            if before is not None and before.id != facts.id and topic in self._names:
                raise recreated(topic, before.id, facts.id)
            if before is None or before.id != facts.id:
                self._first_sizes[topic] = facts.partitions
            self._topics_seen[topic] = facts

    def _facts_of(self, topics: Collection[str]) -> Mapping[str, TopicFacts]:
        return TopicLookup(self._config, sorted(topics)).answer_within(TIMEOUT_S) if topics else {}

    def _watch_owned(self) -> None:
        """Check the ids of topics with an assigned partition, and of topics that must exist and once had one."""
        topics = {topic for topic, _ in self._owned}.union(self._topics_seen.keys() & set(self._names))
        self._incarnations.ids = {topic: self._topics_seen[topic].id for topic in topics}

    def _drop_held(self, partitions: Collection[TopicPartition]) -> None:
        """Drop records that were not returned yet: they are fetched again after a resume, or by the next owner."""
        if self._held:
            dropped = set(partitions)
            self._held = [message for message in self._held if _place(message) not in dropped]

    def _on_revoke(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        if consumer is not self._consumer:
            return
        assert self._listener is not None, "partitions before start"
        going = self._of_ours(partitions)
        try:
            if going:
                self._listener.on_revoked(going)
        finally:
            self._disown(going)

    def _on_lost(self, consumer: Any, partitions: list[KafkaPartition]) -> None:
        if consumer is not self._consumer:
            return
        assert self._listener is not None, "partitions before start"
        unassigned = self._of_ours(partitions)
        self._disown(unassigned)
        if unassigned:
            self._listener.on_lost(unassigned)

    def _of_ours(self, partitions: list[KafkaPartition]) -> list[TopicPartition]:
        return [topic_partition for at in partitions if (topic_partition := (at.topic, at.partition)) in self._owned]

    def _disown(self, partitions: Collection[TopicPartition]) -> None:
        self._owned.difference_update(partitions)
        self._progress.removed(partitions)
        self._drop_held(partitions)
        self._watch_owned()

    def _noted(self, message: Message) -> bool:
        """Whether the message is an error, which is handled; raises the ones that end the consumer."""
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return False
        topic, partition = message.topic(), message.partition()
        if ends_the_member(error):
            raise self._ended(error)
        if is_lost_offset(error) and (topic, partition) not in self._owned:
            # Where commits could not be read, the library starts fetching without a start position until the rejoin.
            pass
        elif is_topic_gone(error) and topic not in self._names:
            self._log.log(logging.INFO, "no_topic", topic, "no topic %s (any more); it is read once it exists", topic)
        elif ends_the_consumer(error):
            if is_lost_offset(error):
                # The log of a topic that was made again has other offsets. That error tells what to do, so it goes
                # first. Without an answer the end is as named.
                self._incarnations.confirm(TIMEOUT_S)
            raise to_error(error, f"topic {topic}, partition {partition}")
        # All other errors are temporary: the library retries, and lag shows them.
        return True


def _place(message: Any) -> TopicPartition:
    return message.topic(), message.partition()


def _is_stored(answer: Any, positions: Mapping[TopicPartition, Position]) -> bool:
    if answer.error is not None:
        raise KafkaException(answer.error)
    at = positions[answer.topic, answer.partition]
    return (answer.offset, answer.metadata or "") == (at.next_offset, at.metadata)


def _closed(consumer: Any) -> None:
    try:
        consumer.close()
    except (KafkaException, RuntimeError) as error:
        logging.getLogger("tsdb.parallel_consumer").debug("a replaced consumer did not close: %s", error)


def _checked(topics: Sequence[str]) -> list[str]:
    if isinstance(topics, str) or not topics or not all(topics):
        raise InvalidConfig(f"topics is {topics!r}; it is a list of topics, at least one", reason="setting")
    for topic in topics:
        if topic.startswith(PATTERN):
            try:
                re.compile(topic)
            except re.error as error:
                raise InvalidConfig(
                    f"topic pattern {topic} is not a regular expression: {error}", reason="setting"
                ) from error
    return list(topics)

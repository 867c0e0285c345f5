"""Fetch: the shared part of reader and group member: consuming, error handling, and the next offset per partition.

One thread. Records are returned only after the topic guard confirmed the topic, and only of partitions that are read at
that moment. The watch of the log (`tsdb.log.kafka.watch`) reads `waits` on its own thread, and names in `stuck` the
partitions that get nothing although the log has more.

Consumed messages become record batches with as few Python steps per record as the client library allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import cast

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition
from numpy.typing import NDArray

from tsdb.log.interface import KEYLESS, EndOfLog, Event, Headers, RecordBatch, TopicPartition
from tsdb.log.joined_bytes import empty, join_bytes
from tsdb.log.kafka.errors import to_error, translate_kafka_errors
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.log.kafka.topic_guard import TopicGuard
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, TsdbError, Unavailable, WrongTopic
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

CONFIRM_WAIT_S = 1.0  # Longer than any healthy answer; unconfirmed records wait for the next poll.
BYTES_GUESS = 1024.0  # Size of a record before the first was seen.
WAKE_WITHIN_S = 0.5  # The library cannot end a wait early, so a long poll is several waits.
# A longer pause between two polls is caused by the owner. It counts no more than this as a wait for records.
PAUSE_S_MAX = 1.0

log = get_logger(__name__)

refetches_total = counter(
    "tsdb_log_refetches_total",
    "Partitions fetched again: a broker refused an offset that it holds, or nothing came although the log has more.",
)

_Pairs = list[tuple[str, bytes | None]]
_TIME_OF = itemgetter(1)  # Takes ms from (kind of timestamp, ms).


@dataclass(frozen=True, slots=True)
class Wait:
    """A partition that is read. reached: every record below it was returned. waited_s: time of polls since its last
    event."""

    reached: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Stuck:
    """Partitions that get nothing although the log has more. is_whole: the consumer is to be replaced."""

    partitions: frozenset[TopicPartition] = frozenset()
    is_whole: bool = False


class Fetch:
    """prefix: put before a topic's name for Kafka. owned: the assigned partitions. next_offsets: the owned partitions
    that are read. A partition whose offset the log does not hold rests until it is assigned an existing offset.
    """

    def __init__(self, consumer: Consumer, guard: TopicGuard, offsets: KafkaOffsets, prefix: str, clock: Clock) -> None:
        self.consumer = consumer
        self.owned: set[TopicPartition] = set()
        self.next_offsets: dict[TopicPartition, int] = {}
        self._guard = guard
        self._offsets = offsets
        self._prefix = prefix
        self._held: list[Message] = []  # Messages that were consumed and are not confirmed yet.
        self._refused: dict[TopicPartition, KafkaError] = {}  # Partitions whose offset a broker refused.
        self._failed: TsdbError | None = None  # The error that came with records. It is raised after them.
        # Partitions that are paused in the client library; a new assignment stays paused.
        self._paused: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()  # Partitions of `owned` that the consumer has.
        self._record_bytes = BYTES_GUESS
        self._clock = clock
        self._polled_at = clock.monotonic()
        self._polled_s = 0.0  # Total time of all polls.
        self._moves: dict[TopicPartition, Wait] = {}  # State at the last event. waited_s is `_polled_s` of that moment.
        self._woken = False
        self.stuck = Stuck()  # Set by the watch.

    def poll(self, timeout_s: float, max_records: int, max_bytes: int) -> list[Event]:
        """See LogReader.poll for the contract. A partition named in `stuck`, and a change of `owned`, end it too."""
        owned, give_up_at = set(self.owned), self._clock.monotonic() + timeout_s
        events: list[Event] = []
        for _ in range(max(1, math.ceil(timeout_s / WAKE_WITHIN_S))):
            left_s = give_up_at - self._clock.monotonic()
            events = self._poll_once(max(0.0, min(left_s, WAKE_WITHIN_S)), max_records, max_bytes)
            if events or self._take_woken() or left_s <= WAKE_WITHIN_S or self.stuck.partitions or self.owned != owned:
                break
        return events

    def wake(self) -> None:
        """See LogReader.wake for the contract."""
        self._woken = True

    def _take_woken(self) -> bool:
        woken, self._woken = self._woken, False
        return woken

    def _poll_once(self, timeout_s: float, max_records: int, max_bytes: int) -> list[Event]:
        try:
            return self._poll(timeout_s, max_records, max_bytes)
        finally:
            now = self._clock.monotonic()
            self._polled_s += min(now - self._polled_at, PAUSE_S_MAX)
            self._polled_at = now

    def waits(self) -> dict[TopicPartition, Wait]:
        """The wait of each partition that is read. Any thread may call it."""
        polled_s, moves = self._polled_s, self._moves
        return {
            partition: Wait(move.reached, polled_s - move.waited_s)
            for partition in list(self.next_offsets)
            if (move := moves.get(partition)) is not None
        }

    def take_stuck(self) -> bool:
        """Read the partitions of `stuck` again. True: the caller has to replace the consumer instead."""
        stuck = self.stuck
        if not stuck.partitions:
            return False
        self.stuck = Stuck()
        partitions = stuck.partitions & self.next_offsets.keys()
        if partitions and stuck.is_whole:
            return True
        for partition in partitions:
            refetches_total.inc()
            self.assign(partition, self.next_offsets[partition])
        return False

    def replace(self, consumer: Consumer) -> None:
        """Read on with another consumer, which has no partitions yet. Records fetched before are dropped."""
        self.consumer = consumer
        self._held, self._failed = [], None
        self._refused.clear()
        self._paused.clear()
        self._assigned = set(self.next_offsets)
        starts = dict(self.next_offsets)
        if starts:
            with translate_kafka_errors("assigning"):
                consumer.incremental_assign([self.kafka_partition(tp, at) for tp, at in starts.items()])
        self.own(starts)

    def _poll(self, timeout_s: float, max_records: int, max_bytes: int) -> list[Event]:
        for topic in {topic for topic, _ in self.next_offsets}:
            self._guard.check(topic)
        self._settle_refused()
        self._raise_failed()
        if not self._held:
            self._held = self._consume(timeout_s, max_records, max_bytes)
        if not self._held:
            return []
        for name in set(map(Message.topic, self._held)) - {None}:
            if not self._guard.confirm(self._ours(name), CONFIRM_WAIT_S):
                return []
        messages, self._held = self._held, []
        events = self._events(messages)
        if not events:
            self._raise_failed()
        return events

    def own(self, starts: Mapping[TopicPartition, int]) -> None:
        """Add partitions that are already assigned in the consumer, to be read from these offsets."""
        self.owned.update(starts)
        self._assigned.update(starts)
        self.next_offsets.update(starts)
        for partition, next_offset in starts.items():
            self._moved(partition, next_offset)

    def disown(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that were taken away. Their consumed records are dropped."""
        for partition in partitions:
            self.owned.discard(partition)
            self._assigned.discard(partition)
            self._paused.discard(partition)
            self._drop(partition)

    def assign(self, partition: TopicPartition, next_offset: int) -> None:
        """Read an owned partition from next_offset on."""
        assert partition in self.owned, f"{_place(partition)} is not ours"
        self._drop(partition)
        # seek() does not work here, because it fails on a paused partition.
        with translate_kafka_errors(_place(partition)):
            if partition in self._assigned:
                self.consumer.incremental_unassign([self.kafka_partition(partition)])
            self.consumer.incremental_assign([self.kafka_partition(partition, next_offset)])
            self._assigned.add(partition)
            if partition in self._paused:
                self.consumer.resume([self.kafka_partition(partition)])
                self._paused.discard(partition)
        self.next_offsets[partition] = next_offset
        self._moved(partition, next_offset)

    def pause(self, partition: TopicPartition) -> None:
        """Stop reading an owned partition until it is assigned an offset."""
        assert partition in self.owned, f"{_place(partition)} is not ours"
        self._drop(partition)
        if partition in self._assigned:
            with translate_kafka_errors(_place(partition)):
                self.consumer.pause([self.kafka_partition(partition)])
            self._paused.add(partition)

    def kafka_partition(self, partition: TopicPartition, offset: int | None = None) -> KafkaPartition:
        """The partition in the client library's type."""
        topic, number = partition
        name = self._prefix + topic
        return KafkaPartition(name, number) if offset is None else KafkaPartition(name, number, offset)

    def ours(self, partitions: list[KafkaPartition]) -> list[TopicPartition]:
        """Names of the partitions, with their topics without the prefix."""
        return [(self._ours(partition.topic), partition.partition) for partition in partitions]

    def _moved(self, partition: TopicPartition, reached: int) -> None:
        self._moves[partition] = Wait(reached, self._polled_s)

    def _ours(self, name: str | None) -> str:
        return (name or "").removeprefix(self._prefix)

    def _drop(self, partition: TopicPartition) -> None:
        self._refused.pop(partition, None)
        self.next_offsets.pop(partition, None)
        self._moves.pop(partition, None)
        kafka = self.kafka_partition(partition)
        self._held = [m for m in self._held if (m.topic(), m.partition()) != (kafka.topic, kafka.partition)]

    def _consume(self, timeout_s: float, max_records: int, max_bytes: int) -> list[Message]:
        count = max(1, min(max_records, int(max_bytes / self._record_bytes)))
        with translate_kafka_errors("reading"):
            # With a timeout consume() waits until it has `count` messages. So take the messages that are already there;
            # if none is there, wait for the first one and take those that came with it.
            messages = self.consumer.consume(count, 0)
            if not messages and timeout_s > 0:
                messages = self.consumer.consume(1, timeout_s)
                if messages and count > 1:
                    messages += self.consumer.consume(count - 1, 0)
        return messages

    def _events(self, messages: list[Message]) -> list[Event]:
        notices: list[Message] = []
        if any(map(Message.error, messages)):
            notices = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        batches = [
            batch for key, group in messages_by_partition(messages).items() if (batch := self._batch(key, group))
        ]
        events: list[Event] = list(batches)
        for message in notices:
            event = self._notice(message)
            if event is not None:
                events.append(event)
        return events

    def _batch(self, key: tuple[str, int], messages: list[Message]) -> RecordBatch | None:
        ours = (self._ours(key[0]), key[1])
        if ours not in self.next_offsets:
            return None  # The partition was dropped or revoked since the fetch.
        batch = to_batch(*ours, messages)
        self.next_offsets[ours] = int(batch.offsets[-1]) + 1
        self._moved(ours, self.next_offsets[ours])
        self._record_bytes = max(1.0, (len(batch.values) + len(batch.keys)) / len(batch.offsets))
        return batch

    def _notice(self, message: Message) -> EndOfLog | None:
        error, name = message.error(), message.topic()
        assert error is not None, "only errors come here"
        partition = (self._ours(name), message.partition() or 0) if name else None
        if partition is not None and partition not in self.next_offsets:
            return None
        if error.code() == KafkaError._PARTITION_EOF and partition is not None:
            # It is above the next offset when the last offsets belong to dropped records or to markers.
            self._moved(partition, max(message.offset() or 0, self.next_offsets[partition]))
            return EndOfLog(*partition, max(message.offset() or 0, self.next_offsets[partition]))
        if error.code() in _OFFSET_REFUSED and partition is not None:
            self._refused[partition] = error
            return None
        ours = to_error(error, _place(partition) if partition else "reading")
        if isinstance(ours, WrongTopic) or (isinstance(ours, Unavailable) and ours.reason != "stale_member"):
            # The topic guard detects whether the topic is gone, and reports the time since which no broker has
            # answered.
            log.debug("fetch failed", reason=ours.reason, error=ours.message)
        else:
            self._failed = ours
        return None

    def _raise_failed(self) -> None:
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise error

    def _settle_refused(self) -> None:
        """Raise the error of a refused offset. If the offset exists after all, fetch the partition again."""
        for partition in list(self._refused):
            next_offset = self.next_offsets[partition]
            try:
                error = self._lost(partition, next_offset, self._refused[partition])
            except Unavailable:
                return  # No broker answers: the partition waits until one does.
            if error is None:
                refetches_total.inc()
                self.assign(partition, next_offset)
                continue
            self._drop(partition)
            raise error

    def _lost(self, partition: TopicPartition, next_offset: int, refusal: KafkaError) -> TsdbError | None:
        topic, number = partition
        marks = self._offsets.watermarks(topic, [number])[number]
        if next_offset < marks.low:
            reason = "below_low_watermark"
        elif next_offset > marks.high:
            reason = "offset_above_end"
        elif refusal.code() == KafkaError._LOG_TRUNCATION:
            reason = "log_truncated"
        else:
            return None
        return LostOffsets(
            f"{_place(partition)}: offset {next_offset} is not in the log, which holds [{marks.low}, {marks.high}): "
            f"{refusal.str()}",
            reason=reason,
            topic=topic,
            partition=number,
            asked=next_offset,
            low=marks.low,
            high=marks.high,
        )


_OFFSET_REFUSED = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})


def _place(partition: TopicPartition) -> str:
    return f"topic {partition[0]}, partition {partition[1]}"


def messages_by_partition(messages: list[Message]) -> dict[tuple[str, int], list[Message]]:
    """Messages of each (Kafka topic, partition), in order. Messages of a partition come in long runs, so grouping runs
    is cheap."""
    groups: dict[TopicPartition, list[Message]] = {}
    for topic, of_topic in groupby(messages, Message.topic):
        assert topic is not None, "a consumed message has a topic"
        for partition, run in groupby(of_topic, Message.partition):
            assert partition is not None, "a consumed message has a partition"
            groups.setdefault((topic, partition), []).extend(run)
    return groups


def to_batch(topic: str, partition: int, messages: list[Message]) -> RecordBatch:
    """Messages of one partition as a batch. topic: the name without the prefix."""
    count = len(messages)
    values = join_bytes(list(map(Message.value, messages)))
    keys, headers = empty(count), None
    if topic not in KEYLESS:
        keys = join_bytes(list(map(Message.key, messages)))
        headers = _headers(messages)
    broker_ms = np.fromiter(map(_TIME_OF, map(Message.timestamp, messages)), np.int64, count)
    return RecordBatch(
        topic,
        partition,
        values.data,
        values.starts,
        keys.data,
        keys.starts,
        _offsets(messages),
        broker_ms,
        values.nulls,
        headers,
    )


def _headers(messages: list[Message]) -> list[Headers] | None:
    found = list(map(Message.headers, messages))
    if not any(found):
        return None
    # Consumed headers come as a list of pairs; a null header reads as empty.
    return [[(name, value or b"") for name, value in cast(_Pairs, pairs or [])] for pairs in found]


def _offsets(messages: list[Message]) -> NDArray[np.int64]:
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None, "a consumed message has an offset"
    assert last is not None, "a consumed message has an offset"
    if last - first == len(messages) - 1:  # Offsets ascend strictly, so no offset is missing in between.
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))

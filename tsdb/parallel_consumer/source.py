"""Source: the interface between the consumer and a log. Records come from it, commits go to it.

`tsdb.parallel_consumer.kafka` implements it over Kafka consumer groups; `testing.memory` in memory for tests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Position, Record, TopicPartition


@dataclass(frozen=True, slots=True)
class Polled:
    """Result of a poll. records: records in order within each partition. ends: the next offset of each partition that
    was read to its end.
    """

    records: Sequence[Record] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolledColumns:
    """Result of a poll in columns. Each entry has records of one partition; entries of a partition are in order."""

    columns: Sequence[RecordColumns] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


class SourceListener(Protocol):
    """Receives assigned and removed partitions, within `Source.poll` and `Source.close`, on the caller's thread."""

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Partitions are assigned. Each is read from its position: the group's commit, or without one the offset given
        by the start rule.
        """

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions are about to be revoked: the last moment to commit them."""

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions are already lost: commits of them are refused."""


class Source(Protocol):
    """A member of a consumer group. One thread calls all methods."""

    def start(self, listener: SourceListener) -> None:
        """Join the group; later polls pass assigned partitions to the listener."""

    def topic_id(self, topic: str) -> str:
        """Id of this incarnation of the topic, at most 64 bytes. A re-created topic has another id."""

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        """Return fetched records, at most records_max; wait up to timeout_s for the first one. Empty when no broker
        answers.

        Also called when all partitions are paused: a poll keeps the membership alive. Raises errors that end the
        consumer.

        """

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed; fetched records may be dropped."""

    def resume(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Resume paused partitions, each at the given offset."""

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Durable on return. Raises CommitFailed (unavailable, stale_member, undecided): the consumer tries again. Any
        other error ends the consumer: Fenced, SendFailed (record_too_large: a record sent in the same transaction).
        """

    def close(self) -> None:
        """Leave the group and give up all partitions (calls on_revoked). A second call does nothing."""


class AtomicSource(Source, Protocol):
    """A source that also writes: records and positions are stored together or not at all."""

    def write(self, records: Sequence[OutRecord], positions: Mapping[TopicPartition, Position]) -> None:
        """Durable on return. The positions prove that their partitions are still assigned to this member.

        Raises CommitFailed. unavailable, stale_member: nothing is durable. undecided: the result is unknown, and the
        caller repeats the same call until it is decided. Raises SendFailed (record_too_large): nothing is durable.
        """


@runtime_checkable
class ColumnSource(Source, Protocol):
    """A source that also returns columns. A consumer polls either records or columns."""

    def poll_columns(self, timeout_s: float, records_max: int) -> PolledColumns:
        """Does what `poll` does, with columns."""


@runtime_checkable
class WakeableSource(Protocol):
    """A source whose poll another thread can end. An idle consumer then waits for seconds in one poll."""

    def wake(self) -> None:
        """End the poll that waits now, or else the next one, early. Any thread."""


@runtime_checkable
class PolledSource(Protocol):
    """A source whose member is expelled from the group when it is not polled in time. A source around another one
    passes the call on.
    """

    def check_drains(self, drains_s: Mapping[str, float]) -> None:
        """Called before the start. drains_s: time without a poll, by the option that causes it. Raises InvalidConfig
        for one that is too long.
        """

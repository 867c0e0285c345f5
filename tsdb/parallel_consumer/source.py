"""Where records come from and commits go: the little that the parallel consumer asks of a log.

`tsdb.parallel_consumer.kafka` is the one over Kafka's consumer groups; `testing.memory` one that a test owns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.outlet import OutRecord
from tsdb.parallel_consumer.record import Partition, Position, Record


@dataclass(frozen=True, slots=True)
class Polled:
    """What a poll brought. records: of each partition in order. ends: partitions read to their end, the next offset."""

    records: Sequence[Record] = ()
    ends: Mapping[Partition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolledColumns:
    """The same as columns: stretches of one partition each, those of a partition in order."""

    columns: Sequence[Columns] = ()
    ends: Mapping[Partition, int] = field(default_factory=dict)


class SourceListener(Protocol):
    """Told of partitions coming and going, within `Source.poll` and `Source.close`, on the caller's thread."""

    def on_assigned(self, starts: Mapping[Partition, Position]) -> None:
        """Ours from now on, to be read from each position: its commit, or without one the first offset there is."""

    def on_revoked(self, partitions: Collection[Partition]) -> None:
        """About to go: the last moment to commit them."""

    def on_lost(self, partitions: Collection[Partition]) -> None:
        """Already gone: commits of them are refused."""


class Source(Protocol):
    """A member of a group of consumers. One thread calls everything."""

    def start(self, listener: SourceListener) -> None:
        """Become a member; partitions come through the listener in later polls."""

    def topic_id(self, topic: str) -> str:
        """Identity of this incarnation of the topic, at most 64 bytes; one that is made anew has another."""

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        """What has arrived, at most records_max; waits up to timeout_s while that is nothing. No broker: nothing.

        Also when all partitions are paused: it keeps the membership alive. Raises what ends the consumer.
        """

    def pause(self, partitions: Collection[Partition]) -> None:
        """Return no records of these until they are resumed; what was fetched of them may be dropped."""

    def resume(self, next_offsets: Mapping[Partition, int]) -> None:
        """Go on with paused partitions, each at the given offset."""

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Durable when it returns. Raises CommitFailed (unavailable, stale_member, undecided): it is tried again. What
        else it raises ends the consumer: Fenced, SendFailed (record_too_large: one that goes out with the commit).
        """

    def close(self) -> None:
        """Give everything back (on_revoked is called) and go; idempotent."""


class AtomicSource(Source, Protocol):
    """A source that also writes: records and positions, all of them or none."""

    def write(self, records: Sequence[OutRecord], positions: Mapping[Partition, Position]) -> None:
        """Durable when it returns. The positions are what makes sure that their partitions are still ours.

        Raises CommitFailed: unavailable, stale_member: nothing of it is durable; undecided: nobody knows yet, and the
        call that follows is the same again, until it is decided. Raises SendFailed (record_too_large): nothing is.
        """


@runtime_checkable
class ColumnSource(Source, Protocol):
    """A source that gives columns too. A consumer polls either the one or the other."""

    def poll_columns(self, timeout_s: float, records_max: int) -> PolledColumns:
        """As poll."""

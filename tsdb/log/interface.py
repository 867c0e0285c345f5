"""The log interface: topics of partitions, with append, ordered reads and lookups by time.

Two implementations (`tsdb.log.kafka`, `tsdb.log.sqlite`) pass one contract suite. The contract is the weaker of both:
records of a batch share a broker time, broker times may step back, offsets may have gaps, and an append may have
succeeded although its answer is an error. Topic names are without the prefix; an implementation adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import TsdbError

METRICS = "metrics"
SERIES = "series"
CHUNKS = "chunks"
CHUNKS_DLQ = "chunks.dlq"
META = "meta"
METADATA = "metadata"

KEYLESS = frozenset({METRICS})  # Topics whose records have no key; readers return no keys for them.
POLL_RECORDS_MAX = 5_000  # A larger batch costs more per record (docs/benchmarks.md).
POLL_BYTES_MAX = 32 * 1024 * 1024
METADATA_UNITS_MAX = 4_095  # UTF-16 units of commit metadata that Kafka's client library passes without a cut.

TopicPartition = tuple[str, int]  # Topic and partition.
Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Appended:
    """Position of an appended record. broker_ms: its broker time, ms since the epoch, UTC."""

    partition: int
    offset: int
    broker_ms: int


OnDone = Callable[[Appended | TsdbError], None]


@dataclass(frozen=True, slots=True)
class Watermarks:
    """low: first readable offset. high: one past the last readable record. Equal when nothing is readable."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record. value: None for a null record."""

    offset: int
    broker_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class RecordBatch:
    """Records of one partition, at least one, offsets strictly ascending.

    values, keys: joined bytes of all records; the value of record i is values[value_starts[i]:value_starts[i + 1]]. The
    starts are int64 (m + 1,), offsets and broker_ms int64 (m,). Keys of KEYLESS topics read as empty. null_values: bool
    (m,), None when no record is null. headers: one sequence a record, None when no record has any; not read of KEYLESS
    topics either. All arrays and bytes belong to the receiver.
    """

    topic: str
    partition: int
    values: bytes
    value_starts: NDArray[np.int64]
    keys: bytes
    key_starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    broker_ms: NDArray[np.int64]
    null_values: NDArray[np.bool_] | None = None
    headers: list[Headers] | None = None

    def first(self, count: int) -> RecordBatch:
        """The first `count` records; shares memory with this batch. count may be 0, although no reader returns that."""
        return RecordBatch(
            self.topic,
            self.partition,
            self.values[: self.value_starts[count]],
            self.value_starts[: count + 1],
            self.keys[: self.key_starts[count]],
            self.key_starts[: count + 1],
            self.offsets[:count],
            self.broker_ms[:count],
            None if self.null_values is None else self.null_values[:count],
            None if self.headers is None else self.headers[:count],
        )

    def record(self, index: int) -> LogRecord:
        """A copy of one record, for code that is not hot."""
        null = self.null_values is not None and bool(self.null_values[index])
        key = self.keys[self.key_starts[index] : self.key_starts[index + 1]]
        value = self.values[self.value_starts[index] : self.value_starts[index + 1]]
        return LogRecord(
            int(self.offsets[index]),
            int(self.broker_ms[index]),
            None if self.topic in KEYLESS else key,
            None if null else value,
            () if self.headers is None else self.headers[index],
        )


@dataclass(frozen=True, slots=True)
class EndOfLog:
    """The reader has returned every record below next_offset, which was the end. Comes again after more records."""

    topic: str
    partition: int
    next_offset: int


Event = RecordBatch | EndOfLog


class LogReader(Protocol):
    """Reads assigned partitions from given offsets on. One thread; a context manager."""

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        """Events that have arrived. Waits up to timeout_s for the first event, and never for more.

        Order within a partition is the log's. max_bytes is a target, not an exact bound. Empty while no broker answers.
        Raises LostOffsets (below_low_watermark, offset_above_end) with metadata topic, partition, asked, low, high: the
        partition rests until `seek`; WrongTopic (topic_recreated, topic_deleted): the reader is no longer usable.
        """

    def wake(self) -> None:
        """End the poll that waits now, or else the next one, early. Any thread. Over Kafka it takes up to half a
        second."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        """Continue at next_offset. Records fetched before are dropped."""

    def pause(self, topic: str, partition: int) -> None:
        """Stop reading a partition until `seek`. Fetched records are dropped."""

    @property
    def unavailable_since_monotonic(self) -> float | None:
        """Monotonic time, in seconds, since which no broker has answered; None while one answers."""

    def close(self) -> None:
        """Release the connection. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Log(Protocol):
    """Thread-safe, except for its readers and groups, which belong to one thread each. A context manager.

    Every call with a request to the broker raises Unavailable (unavailable, timeout) without an answer, and WrongTopic
    (unknown_topic, topic_recreated) or InvalidRequest (unknown_partition) if the topic or partition does not exist.
    """

    def topic_id(self, topic: str) -> str:
        """Id of this incarnation of the topic, as this object first saw it."""

    def partitions(self, topic: str) -> int:
        """Number of partitions of the topic."""

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_done: OnDone,
    ) -> None:
        """Send one record; on_done is called exactly once, from any thread, also during this call.

        Its argument is Appended once the record is durable by the topic's rules, else an error: Unavailable (the record
        may or may not be in the log: send again), InvalidRequest (record_too_large, unknown_partition), WrongTopic.
        on_done must not block. Records of one caller to one partition keep their order; their answers may come in
        another order. Raises, without a call of on_done: Overloaded (queue_full) at the bound of waiting bytes,
        InvalidRequest (record_too_large), WrongTopic. timestamp_ms: the broker time, only on CreateTime topics.
        """

    def append_sync(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Appended:
        """`append`, and wait for the answer. Raises the error that on_done would receive, or Unavailable (timeout)."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all appends so far are answered. Raises Unavailable (timeout) with the number still waiting."""

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        """Watermarks per partition, fresh from the broker."""

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """High watermarks alone, fresh from the broker: one request over Kafka, where `watermarks` sends two."""

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """The first offset with a broker time >= the given ms, by partition; None where no record is at or after it."""

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> LogReader:
        """A reader of these partitions, each from its start offset on. prefetch_bytes: bound of the prefetch, which
        short reads set low.

        linger_s: a record at the end may wait this long for others, because one fetch of many records is cheaper.

        """

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> Group:
        """A member of a group, not yet joined. name: last word of its client id, which `members` shows. linger_s: see
        `reader`."""

    def members(self, group_id: str) -> list[str]:
        """Client ids of the members, one for each. An embedded log knows the members in the same process."""

    def stalled(self) -> str:
        """Reason why this process needs a restart: a client gets no answer although the log answers others, and new
        clients do not help. Empty without a reason. No I/O; any thread may call it."""

    def close(self) -> None:
        """Answer the waiting appends and stop the threads. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Position:
    """A commit: everything below next_offset was processed. metadata: at most METADATA_UNITS_MAX UTF-16 units."""

    next_offset: int
    metadata: str = ""


class GroupListener(Protocol):
    """Callbacks for assigned and revoked partitions, on the member's thread, within `poll` or `leave`."""

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        """New partitions of this member, with their commits. Returns the first offset to read of each.

        If it raises Unavailable, the partitions are not taken yet: `poll` raises the error, and later polls try again.
        """

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that are about to leave this member: the last moment to commit them.

        During another rebalance even this commit may come too late (Unavailable, stale_member). The next owner then
        repeats the work that is not committed.
        """

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions already gone: another member may own them, and commits are refused."""


class Group(Protocol):
    """A member of a group, which shares the partitions among its members. Commits outlive the members. One thread; a
    context manager."""

    def join(
        self, topics: Sequence[str], listener: GroupListener, *, followers: Mapping[str, str] | None = None
    ) -> None:
        """Become a member. Partitions come through the listener during later polls.

        followers: the leader of each follower, one of `topics`. Partition p of a follower comes and goes with partition
        p of its leader. All members must give the same followers.
        """

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        """See LogReader.poll. It reads the assigned partitions, and a change of them ends it early too."""

    def wake(self) -> None:
        """See LogReader.wake for the contract."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        """See LogReader.seek for the contract."""

    def pause(self, topic: str, partition: int) -> None:
        """Stop reading a partition until `seek`. It stays assigned and can be committed. Fetched records are dropped.

        Keep polling, also when all partitions rest: polls show the group that a member is alive.
        """

    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions of this member at this moment."""

    def is_spare(self) -> bool:
        """Whether this member has no partition because the others have all of them, at the last look. Any thread may
        call it."""

    def joining_s(self) -> float:
        """Seconds for which this member has had no partition, although the log answers and the group has one for it; 0
        for other members. State of the last look; any thread may call it."""

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit positions, durable on return. Raises Unavailable (stale_member) for a partition that is no longer this
        member's, InvalidRequest (metadata_too_large, offset_negative)."""

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's commits; None for a partition without one. Works before `join` too."""

    def leave(self) -> None:
        """Give all partitions back (calls on_revoked) and leave. A second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

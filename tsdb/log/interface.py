"""The log as the rest of the system sees it: topics of partitions, appended to, read in order, looked up by time.

Two implementations (`tsdb.log.kafka`, `tsdb.log.sqlite`) pass one contract suite. The contract is the weaker of both:
broker times are shared by the records of a batch and may step back, offsets may have gaps, and an append may have
succeeded although its answer says otherwise. Topic names are ours; an implementation adds its prefix.
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

KEYLESS = frozenset({METRICS})  # Topics whose records have no key; readers do not fetch any for them.
POLL_RECORDS_MAX = 5_000  # Consuming more at once costs more per record (docs/benchmarks.md).
POLL_BYTES_MAX = 32 * 1024 * 1024
METADATA_UNITS_MAX = 4_095  # UTF-16 units of commit metadata that Kafka's client library passes whole.

TopicPartition = tuple[str, int]  # (topic, partition)
Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record went. broker_ms: its broker time, ms since epoch UTC."""

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
    """One record. A null record has value None."""

    offset: int
    broker_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class RecordBatch:
    """Records of one partition, at least one, offsets strictly ascending.

    values, keys: all joined; record i is values[value_starts[i]:value_starts[i + 1]]. The starts are int64 (m + 1,),
    offsets and broker_ms int64 (m,). Keys of KEYLESS topics read as empty. null_values: bool (m,), None when no record
    is null. headers: one sequence a record, None when no record has any; not read of KEYLESS topics either. All arrays
    and bytes belong to the receiver.
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
        """The first `count` records; shares memory with this batch. count may be 0, which no reader returns."""
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
        """One record, copied out; for code that is not hot."""
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
        """What has arrived; waits up to timeout_s while that is nothing. Never waits for more once it has something.

        Order within a partition is the log's. max_bytes is aimed at, not kept to the byte. The broker away: empty.
        Raises LostOffsets (below_low_watermark, offset_above_end) with metadata topic, partition, asked, low, high: the
        partition rests until `seek`; WrongTopic (topic_recreated, topic_deleted): the reader is of no more use.
        """

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        """Go on reading at next_offset; what was fetched before is dropped."""

    def rest(self, topic: str, partition: int) -> None:
        """Read no more of a partition until `seek`. What was fetched is dropped."""

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """High watermarks as last seen with a fetch; a partition not fetched from yet is missing. No I/O."""

    @property
    def unavailable_since_monotonic(self) -> float | None:
        """Since when no broker answers (monotonic seconds); None while one does."""

    def close(self) -> None:
        """Release; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Log(Protocol):
    """Thread-safe, but for readers and groups, which belong to one thread each. A context manager.

    Every call that asks the broker raises Unavailable (unavailable, timeout) when it does not answer, and WrongTopic
    (unknown_topic, topic_recreated) or InvalidRequest (unknown_partition) when it answers that there is no such thing.
    """

    def topic_id(self, topic: str) -> str:
        """Identity of this incarnation of the topic, as first seen by this object."""

    def partitions(self, topic: str) -> int:
        """How many partitions the topic has."""

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

        It gets Appended once the record is durable by the topic's rules, else an error: Unavailable (the record may or
        may not be in the log: send again), InvalidRequest (record_too_large, unknown_partition), WrongTopic. It must
        not block. Records of one caller to one partition keep their order; their answers may come in another. Raises,
        and does not call on_done: Overloaded (queue_full) at the bound of waiting bytes, InvalidRequest
        (record_too_large), WrongTopic. timestamp_ms: the broker time, on CreateTime topics alone.
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
        """`append` and wait; raises what on_done would get, or Unavailable (timeout)."""

    def flush(self, timeout_s: float) -> None:
        """Wait until every append so far was answered. Raises Unavailable (timeout) with what is left."""

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        """Fresh from the broker."""

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """Per partition the first offset with broker time >= the given ms; None: no record at or after it."""

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> LogReader:
        """A reader of these partitions, each from its start offset on. prefetch_bytes: small for short reads.

        linger_s: how long a record at the end may wait for others, where bringing many at once is cheaper.
        """

    def group(self, group_id: str) -> Group:
        """A member of a group, not yet joined."""

    def close(self) -> None:
        """Answer what waits, stop the threads; idempotent."""

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
    """Told of partitions coming and going, on the member's own thread, within `poll` or `leave`."""

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        """Partitions that are ours from now on, with their commits; returns the first offset to read of each.

        When it raises Unavailable the partitions are not taken yet: `poll` raises that, and later polls ask again.
        """

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions about to go: the last moment to commit them.

        While another rebalance is under way even that may come too late (Unavailable, stale_member): what is then not
        committed will be done again, by whoever comes next.
        """

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions already gone: somebody else may own them, commits are refused."""


class Group(Protocol):
    """A member of a group: partitions are shared among members, commits outlive them. One thread; context manager."""

    def join(
        self, topics: Sequence[str], listener: GroupListener, *, followers: Mapping[str, str] | None = None
    ) -> None:
        """Become a member; partitions come through the listener during later polls.

        followers: topic -> one of `topics`; partition p of it comes and goes with partition p of that one. All members
        must name the same.
        """

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        """As LogReader.poll, over what is assigned."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        """As LogReader.seek."""

    def rest(self, topic: str, partition: int) -> None:
        """Read no more of a partition until `seek`; it stays ours, and can be committed. What was fetched is dropped.

        Polls go on, also when all rest: the group hears from its members by them.
        """

    def assigned(self) -> frozenset[TopicPartition]:
        """What is ours at this moment."""

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Durable when it returns. Raises Unavailable (stale_member) when a partition is no longer ours, InvalidRequest
        (metadata_too_large, offset_negative)."""

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's commits; None where there is none. Also before joining."""

    def leave(self) -> None:
        """Give everything back (on_revoked is called) and go; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

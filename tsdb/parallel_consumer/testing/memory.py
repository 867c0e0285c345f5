"""A broker in memory: has topics, one group, rebalances among its members, commits, and injected faults.

One thread makes all calls of one broker; only `append` may come from another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from itertools import groupby

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError, SendFailed, TopicRecreated
from tsdb.parallel_consumer.producer import OnSent, OutRecord
from tsdb.parallel_consumer.record import Headers, Position, Record, TopicPartition
from tsdb.parallel_consumer.source import Polled, PolledColumns, SourceListener


class Protocol(Enum):
    """How a rebalance moves partitions between members."""

    COOPERATIVE = "cooperative"  # A member gives up only partitions now assigned to another.
    EAGER = "eager"  # A member gives up all partitions, then takes its share.


def _offset_of(record: Record) -> int:
    return record.offset


class MemoryBroker:
    """`commits`: acknowledged, or stored without acknowledgement. `history`: all stored commits in order.

    commit_fault(partition): None, "lost" (not stored) or "unacknowledged" (stored, and the acknowledgement is lost).
    away: polls return nothing and commits are not answered. on_poll: called before every poll; used by FaultScript.
    """

    def __init__(self, partitions: int, *topics: str, protocol: Protocol = Protocol.COOPERATIVE) -> None:
        self.records: dict[TopicPartition, list[Record]] = {(t, p): [] for t in topics for p in range(partitions)}
        self.starts: dict[TopicPartition, int] = dict.fromkeys(self.records, 0)
        self.ends: dict[TopicPartition, int] = dict.fromkeys(self.records, 0)
        self.commits: dict[TopicPartition, Position] = {}
        self.history: list[tuple[TopicPartition, Position]] = []
        self.topic_ids = {topic: f"id-of-{topic}" for topic in topics}
        self.commit_fault: Callable[[TopicPartition], str | None] = lambda partition: None
        self.protocol = protocol
        self.away = False
        self.on_poll: Callable[[], None] = lambda: None
        self.members: list[MemorySource] = []

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        gap: int = 0,
        timestamp_ms: int = 0,
    ) -> int:
        """Append behind `gap` offsets without a record; returns the offset."""
        topic_partition = (topic, partition)
        offset = self.ends[topic_partition] + gap
        self.records[topic_partition].append(Record(topic, partition, offset, key, value, timestamp_ms, headers))
        self.ends[topic_partition] = offset + 1
        return offset

    def skip(self, topic: str, partition: int, count: int) -> None:
        """Add offsets without a record at the end, as transactions and compaction leave them."""
        self.ends[topic, partition] += count

    def compact(self, topic: str, partition: int) -> None:
        """Keep only the newest record of each key, and all records without a key."""
        topic_partition = (topic, partition)
        newest = {record.key: record.offset for record in self.records[topic_partition]}
        self.records[topic_partition] = [
            record
            for record in self.records[topic_partition]
            if record.key is None or newest[record.key] == record.offset
        ]

    def trim(self, topic: str, partition: int, below: int) -> None:
        """Retention: delete offsets below. A member that still has to read one of them ends with an error."""
        topic_partition = (topic, partition)
        self.records[topic_partition] = self.records[topic_partition][
            bisect_left(self.records[topic_partition], below, key=_offset_of) :
        ]
        self.starts[topic_partition] = max(self.starts[topic_partition], below)

    def recreate(self, topic: str) -> None:
        """Delete the topic and make it again, empty and with another id. As with Kafka, the group's commits go too."""
        for topic_partition in [at for at in self.records if at[0] == topic]:
            self.records[topic_partition] = []
            self.starts[topic_partition] = self.ends[topic_partition] = 0
            self.commits.pop(topic_partition, None)
        self.topic_ids[topic] += "'"

    def kill(self, member: MemorySource) -> None:
        """The member crashes, or the group declares it dead; its partitions are free.

        A member that still polls learns that its partitions are lost, and joins again.
        """
        if member in self.members:
            self.members.remove(member)

    def share_of(self, member: MemorySource) -> set[TopicPartition]:
        """Partitions of a member: partition numbers assigned in turn, the same number of all topics together."""
        index = self.members.index(member)
        return {at for at in self.records if at[1] % len(self.members) == index}


class MemorySource:
    """One member of the group of a broker. Implements ColumnSource."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._listener: SourceListener | None = None
        self._next: dict[TopicPartition, int] = {}  # The next offset to read of each assigned partition.
        self._reported_end: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, str] = {}  # Topic id of each assigned partition, as of its assignment.
        self.paused: set[TopicPartition] = set()
        self.assigned: set[TopicPartition] = set()
        self.polls: list[int] = []  # The argument records_max of each poll.
        self.on_idle: Callable[[float], None] = lambda timeout_s: None  # Called while a poll waits.

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._broker.members.append(self)

    def topic_id(self, topic: str) -> str:
        return self._broker.topic_ids[topic]

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        self._broker.on_poll()
        self.polls.append(records_max)
        if self._broker.away:
            self.on_idle(timeout_s)
            return Polled()
        self._check_ids(self.assigned)
        self._rebalance()
        found: list[Record] = []
        ends: dict[TopicPartition, int] = {}
        for topic_partition in sorted(self.assigned - self.paused):
            self._read(topic_partition, records_max, found, ends)
        if not found and not ends and timeout_s > 0:
            self.on_idle(timeout_s)
        return Polled(found, ends)

    def poll_columns(self, timeout_s: float, records_max: int) -> PolledColumns:
        polled = self.poll(timeout_s, records_max)
        ranges = [list(records) for _, records in groupby(polled.records, key=lambda record: record.topic_partition)]
        return PolledColumns([RecordColumns.of(records) for records in ranges], polled.ends)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        assert self.assigned >= set(partitions), "paused a partition that is not assigned"
        self.paused.update(partitions)

    def resume(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        for topic_partition, next_offset in next_offsets.items():
            assert topic_partition in self.paused, "resumed a partition that is not paused"
            self.paused.discard(topic_partition)
            self._seek(topic_partition, next_offset)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        if self._broker.away:
            raise CommitFailed("no answer", reason="unavailable")
        faults = set()
        current = {at: position for at, position in positions.items() if self._is_current(at)}
        for topic_partition, position in current.items():
            if topic_partition not in self.assigned or self not in self._broker.members:
                raise CommitFailed(f"{topic_partition} is not ours", reason="stale_member")
            fault = self._broker.commit_fault(topic_partition)
            faults.add(fault)
            if fault != "lost":
                self._broker.commits[topic_partition] = position
                self._broker.history.append((topic_partition, position))
        if faults - {None}:
            raise CommitFailed("no answer", reason="unavailable")
        self._check_ids(positions)

    def close(self) -> None:
        self._give_back(self.assigned)
        self._broker.kill(self)

    def _is_current(self, topic_partition: TopicPartition) -> bool:
        assigned_id = self._ids.get(topic_partition)
        return assigned_id is None or assigned_id == self._broker.topic_ids[topic_partition[0]]

    def _check_ids(self, partitions: Iterable[TopicPartition]) -> None:
        """Act like KafkaSource: read nothing of a re-created topic, and commit nothing to it."""
        for topic_partition in partitions:
            if not self._is_current(topic_partition):
                raise TopicRecreated(f"topic {topic_partition[0]} was deleted and made again while it was read")

    def _read(
        self, topic_partition: TopicPartition, records_max: int, found: list[Record], ends: dict[TopicPartition, int]
    ) -> None:
        records, next_offset = self._broker.records[topic_partition], self._next[topic_partition]
        if next_offset < self._broker.starts[topic_partition]:
            topic, partition = topic_partition
            message = f"topic {topic}, partition {partition}: offset {next_offset} is gone"
            raise ConsumerError(message, reason="lost_offsets")
        at = bisect_left(records, next_offset, key=_offset_of)
        taken = records[at : at + records_max - len(found)]
        found += taken
        if taken:
            self._next[topic_partition] = taken[-1].offset + 1
        end = self._broker.ends[topic_partition]
        if at + len(taken) == len(records) and self._reported_end.get(topic_partition) != end:
            ends[topic_partition] = self._reported_end[topic_partition] = end

    def _rebalance(self) -> None:
        assert self._listener is not None, "poll before start"
        broker = self._broker
        if self not in broker.members:
            lost, self.assigned = self.assigned, set()
            broker.members.append(self)
            self.paused.clear()
            if lost:
                self._listener.on_lost(sorted(lost))
        share = broker.share_of(self)
        if broker.protocol is Protocol.EAGER and share != self.assigned:
            self._give_back(self.assigned)
        self._give_back(self.assigned - share)
        others = set().union(*(member.assigned for member in broker.members if member is not self))
        coming = sorted(share - self.assigned - others)
        if coming:
            starts = {
                topic_partition: broker.commits.get(topic_partition, Position(broker.starts[topic_partition]))
                for topic_partition in coming
            }
            self.assigned.update(coming)
            self._ids |= {topic_partition: broker.topic_ids[topic_partition[0]] for topic_partition in coming}
            for topic_partition, start in starts.items():
                self._seek(topic_partition, start.next_offset)
            self._listener.on_assigned(starts)

    def _give_back(self, partitions: Collection[TopicPartition]) -> None:
        going = sorted(partitions)
        if going:
            assert self._listener is not None, "held before start"
            self._listener.on_revoked(going)
            self.assigned.difference_update(going)
            self.paused.difference_update(going)

    def _seek(self, topic_partition: TopicPartition, next_offset: int) -> None:
        self._next[topic_partition] = next_offset
        self._reported_end.pop(topic_partition, None)


class MemoryProducer:
    """Records all sent records. `fault(record)`: None, or the reason of the SendFailed to report."""

    def __init__(self) -> None:
        self.sent: list[OutRecord] = []
        self.fault: Callable[[OutRecord], str | None] = lambda record: None
        self.attempts: defaultdict[tuple[str, int], int] = defaultdict(int)

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        self.attempts[record.topic, record.partition] += 1
        reason = self.fault(record)
        if reason is None:
            self.sent.append(record)
        on_sent(None if reason is None else SendFailed("not sent", reason=reason))

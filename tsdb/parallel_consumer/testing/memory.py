"""A broker in memory: topics, one group, rebalances among its members, commits, and faults on request.

One thread calls everything of one broker; only `append` may come from another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from tsdb.parallel_consumer.errors import CommitFailed, SendFailed
from tsdb.parallel_consumer.outlet import OnSent, OutRecord
from tsdb.parallel_consumer.record import Headers, Partition, Position, Record
from tsdb.parallel_consumer.source import Polled, SourceListener


class MemoryBroker:
    """`commits`: as acknowledged, or stored though not acknowledged. `history`: all commits in the order stored.

    commit_fault(partition): None, "lost" (not stored) or "unacknowledged" (stored, and the answer is lost).
    """

    def __init__(self, partitions: int, *topics: str) -> None:
        self.records: dict[Partition, list[Record]] = {(t, p): [] for t in topics for p in range(partitions)}
        self.ends: dict[Partition, int] = dict.fromkeys(self.records, 0)
        self.commits: dict[Partition, Position] = {}
        self.history: list[tuple[Partition, Position]] = []
        self.topic_ids = {topic: f"id-of-{topic}" for topic in topics}
        self.commit_fault: Callable[[Partition], str | None] = lambda partition: None
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
        """Append behind `gap` offsets of no record; returns the offset."""
        place = (topic, partition)
        offset = self.ends[place] + gap
        self.records[place].append(Record(topic, partition, offset, key, value, timestamp_ms, headers))
        self.ends[place] = offset + 1
        return offset

    def skip(self, topic: str, partition: int, count: int) -> None:
        """Offsets of no record at the end, as transactions and compaction leave them."""
        self.ends[topic, partition] += count

    def kill(self, member: MemorySource) -> None:
        """The member is gone without a word; its partitions are free."""
        if member in self.members:
            self.members.remove(member)

    def share_of(self, member: MemorySource) -> set[Partition]:
        """What a member should hold: partitions in turn, a partition number of all topics together."""
        place = self.members.index(member)
        return {at for at in self.records if at[1] % len(self.members) == place}


class MemorySource:
    """One member of the group of a broker."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._listener: SourceListener | None = None
        self._index: dict[Partition, int] = {}  # Into the records of each partition that is ours.
        self._told_end: dict[Partition, int] = {}
        self.paused: set[Partition] = set()
        self.held: set[Partition] = set()
        self.polls: list[int] = []  # How many records each poll was asked for.
        self.on_idle: Callable[[float], None] = lambda timeout_s: None  # What happens while a poll waits.

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._broker.members.append(self)

    def topic_id(self, topic: str) -> str:
        return self._broker.topic_ids[topic]

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        self._rebalance()
        self.polls.append(records_max)
        found: list[Record] = []
        ends: dict[Partition, int] = {}
        for place in sorted(self.held - self.paused):
            records, at = self._broker.records[place], self._index[place]
            taken = records[at : at + records_max - len(found)]
            found += taken
            self._index[place] = at + len(taken)
            end = self._broker.ends[place]
            if self._index[place] == len(records) and self._told_end.get(place) != end:
                ends[place] = self._told_end[place] = end
        if not found and not ends and timeout_s > 0:
            self.on_idle(timeout_s)
        return Polled(found, ends)

    def pause(self, partitions: Collection[Partition]) -> None:
        assert self.held >= set(partitions), "paused what is not ours"
        self.paused.update(partitions)

    def resume(self, next_offsets: Mapping[Partition, int]) -> None:
        for place, next_offset in next_offsets.items():
            assert place in self.paused, "resumed what is not paused"
            self.paused.discard(place)
            self._seek(place, next_offset)

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        faults = set()
        for place, position in positions.items():
            if place not in self.held or self not in self._broker.members:
                raise CommitFailed(f"{place} is not ours", reason="stale_member")
            fault = self._broker.commit_fault(place)
            faults.add(fault)
            if fault != "lost":
                self._broker.commits[place] = position
                self._broker.history.append((place, position))
        if faults - {None}:
            raise CommitFailed("no answer", reason="unavailable")

    def close(self) -> None:
        self._give_back(self.held)
        self._broker.kill(self)

    def _rebalance(self) -> None:
        assert self._listener is not None, "poll before start"
        if self not in self._broker.members:
            lost, self.held = self.held, set()
            self._broker.members.append(self)
            self.paused.clear()
            if lost:
                self._listener.on_lost(sorted(lost))
        share = self._broker.share_of(self)
        self._give_back(self.held - share)
        others = set().union(*(member.held for member in self._broker.members if member is not self))
        coming = sorted(share - self.held - others)
        if coming:
            starts = {place: self._broker.commits.get(place, Position(0)) for place in coming}
            self.held.update(coming)
            for place, start in starts.items():
                self._seek(place, start.next_offset)
            self._listener.on_assigned(starts)

    def _give_back(self, partitions: Collection[Partition]) -> None:
        going = sorted(partitions)
        if going:
            assert self._listener is not None, "held before start"
            self._listener.on_revoked(going)
            self.held.difference_update(going)
            self.paused.difference_update(going)

    def _seek(self, place: Partition, next_offset: int) -> None:
        records = self._broker.records[place]
        self._index[place] = sum(record.offset < next_offset for record in records)
        self._told_end.pop(place, None)


class MemoryOutlet:
    """Keeps what was sent. `fault(record)`: None, or the reason of the SendFailed that it gets."""

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

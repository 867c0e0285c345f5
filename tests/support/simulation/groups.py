"""Groups of a simulated log: one member owns all partitions; one that is replaced goes on for a while as a zombie."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from support.simulation.log import SimulatedLog, SimulatedReader
from tsdb.log.interface import Event, GroupListener, Position, TopicPartition
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable

OnCommit = Callable[[str, Mapping[TopicPartition, Position]], None]


class SimulatedGroup:
    """State of a group's coordinator. lost_ack, refused: shares of commits that fail in these ways."""

    def __init__(self, group_id: str, log: SimulatedLog, clock: ManualClock, on_commit: OnCommit) -> None:
        self.group_id = group_id
        self.log = log
        self.clock = clock
        self.on_commit = on_commit
        self.committed: dict[TopicPartition, Position] = {}
        self.owner: Member | None = None
        self.random = random.Random(0)
        self.lost_ack = self.refused = 0.0


class Member:
    """tsdb.log.interface.Group. unaware: polls that a replaced member makes before it learns of it."""

    def __init__(self, group: SimulatedGroup) -> None:
        self._group = group
        self._topics: list[str] = []
        self._listener: GroupListener | None = None
        self._reader: SimulatedReader | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self.unaware = 0

    def join(
        self, topics: Sequence[str], listener: GroupListener, *, followers: Mapping[str, str] | None = None
    ) -> None:
        self._topics = [*topics, *(followers or ())]
        self._listener = listener
        self._group.owner = self

    def poll(self, timeout_s: float, *, max_records: int = 5_000, max_bytes: int = 0) -> list[Event]:
        assert self._listener is not None, "joined"
        if self._group.owner is None and self._reader is None:
            self._group.owner = self
        if self._group.owner is not self:
            return self._poll_replaced(timeout_s, max_records)
        if self._reader is None:
            self._assign(self._listener)
            return []
        return self._reader.poll(timeout_s, max_records=max_records)

    def wake(self) -> None:
        """A poll never waits for long."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        if self._reader is not None:
            self._reader.seek(topic, partition, next_offset)

    def pause(self, topic: str, partition: int) -> None:
        if self._reader is not None:
            self._reader.pause(topic, partition)

    def assigned(self) -> frozenset[TopicPartition]:
        return self._assigned

    def is_spare(self) -> bool:
        return self._group.owner is not self

    def joining_s(self) -> float:
        return 0.0

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        group = self._group
        if group.owner is not self:
            raise Unavailable("another member has these partitions", reason="stale_member")
        dice = group.random.random()
        if dice < group.refused:
            raise Unavailable("the coordinator is away")
        group.on_commit(group.group_id, positions)
        group.committed.update(positions)
        if dice < group.refused + group.lost_ack:
            raise Unavailable("the answer to a commit is lost", reason="timeout")

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None]:
        return {place: self._group.committed.get(place) for place in partitions}

    def die(self) -> None:
        """The process is gone: a member without partitions gets them at its next poll."""
        if self._group.owner is self:
            self._group.owner = None

    def leave(self) -> None:
        if self._listener is not None and self._group.owner is self:
            self._listener.on_revoked(self._assigned)
            self._group.owner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _assign(self, listener: GroupListener) -> None:
        log = self._group.log
        places = [(topic, number) for topic in self._topics for number in range(log.partitions(topic))]
        starts = listener.on_assigned(self.committed(places))
        self._reader = SimulatedReader(log, self._group.clock, starts)
        self._assigned = frozenset(places)

    def _poll_replaced(self, timeout_s: float, max_records: int) -> list[Event]:
        if self._reader is None:
            return []
        if self.unaware > 0:
            self.unaware -= 1
            return self._reader.poll(timeout_s, max_records=max_records)
        assert self._listener is not None, "joined"
        gone, self._assigned, self._reader = self._assigned, frozenset(), None
        self._listener.on_lost(gone)
        return []

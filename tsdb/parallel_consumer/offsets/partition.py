"""PartitionState: keeps the state of one assigned partition."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.offsets.attempt_history import AttemptHistory
from tsdb.parallel_consumer.offsets.metadata import AttemptCounts, CommitMetadata, encode_metadata
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.order import SpecialLane
from tsdb.parallel_consumer.record import Position, Record, TopicPartition
from tsdb.parallel_consumer.scheduling.lanes import Lanes
from tsdb.parallel_consumer.scheduling.task import Task


@dataclass(slots=True, eq=False)
class PartitionState:
    """Implements TaskOwner. The state of one partition in one generation, from its assignment to its removal.

    attempts: attempts recorded in the commit, of records not read again yet. barriers: records that run after all
    before them.
    backlog: records read but not admitted to the tracker yet. columns: blocks read but not admitted yet. full: the
    backlog does not fit the map.
    ended: the end offset reported by the source. over_quota_records: its record count when it was paused for being over
    quota, else 0.
    record_bytes, arrived_at: mean size and time of the last arrival.
    touched: unfinished tasks with attempts to record in a commit, by slot. running: number of running records.
    draining: no further record begins. closed: removed; completions are late. dirty: something to commit.

    """

    topic_partition: TopicPartition
    generation: int
    topic_id: str
    tracker: OffsetTracker
    assigned_at: float
    read_to: int
    attempts: AttemptHistory = field(default_factory=AttemptHistory)
    lanes: Lanes = field(default_factory=Lanes)
    barriers: deque[Task] = field(default_factory=deque)
    backlog: deque[Record] = field(default_factory=deque)
    columns: deque[RecordColumns] = field(default_factory=deque)
    full: bool = False
    over_quota_records: int = 0
    record_bytes: int = 0
    arrived_at: float = 0.0
    touched: dict[int, Task] = field(default_factory=dict)
    ended: int | None = None
    unfinished: int = 0
    unfinished_bytes: int = 0
    running: int = 0
    paused: bool = False
    draining: bool = False
    closed: bool = False
    dirty: bool = False
    committed: Position | None = None

    def end(self) -> None:
        """Skip offsets without a record, once the source reported the end and all records before it are admitted."""
        if self.ended is not None and not self.backlog and not self.columns:
            before = self.tracker.position
            self.tracker.reached(self.ended)
            self.read_to = max(self.read_to, self.ended)
            self.ended = None
            self.dirty |= self.tracker.position != before

    def finish(self, task: Task) -> Task | None:
        if task.block is None:
            self.tracker.finish(task.slot)
        else:
            self.tracker.finish_block(task.slot, task.count)
        if self.touched:
            self.touched.pop(task.slot, None)
        self.dirty = True
        self.unfinished -= task.count
        self.unfinished_bytes -= task.size
        if task.lane is SpecialLane.UNORDERED or task.streak is not None:
            return None
        return self.lanes.leave(task)

    def touch(self, task: Task) -> None:
        self.touched[task.slot] = task
        self.dirty = True

    def replace_running(self, task: Task, parts: list[Task]) -> list[Task]:
        self.touched.pop(task.slot, None)
        return self.lanes.replace_running(task, parts)

    def take_followers(self, task: Task, count: int, size: int) -> list[Task]:
        return self.lanes.take_followers(task, count, size)

    def give_back(self, tasks: list[Task]) -> None:
        self.lanes.give_back(tasks)

    def enter_newest(self, task: Task) -> tuple[bool, Task | None]:
        return self.lanes.enter_newest(task)

    def to_commit(self, units_max: int) -> Position:
        """Position and metadata of the current state."""
        position = self.tracker.position
        progress = CommitMetadata(self.tracker.finished_runs(), self._all_attempts(position))
        metadata = encode_metadata(position, progress, self.topic_id, units_max=units_max)
        return Position(position, metadata)

    def _all_attempts(self, position: int) -> list[AttemptCounts]:
        touched = [
            AttemptCounts(
                task.record.offset, task.failures, task.crashes, task.running and task.outgoing is None, task.span
            )
            for task in self.touched.values()
        ]
        return [*touched, *self.attempts.remaining(position)]

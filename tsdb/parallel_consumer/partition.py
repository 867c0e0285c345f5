"""PartitionState: the state of one assigned partition."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.lanes import Lanes
from tsdb.parallel_consumer.metadata import Progress, Tries, encode_metadata
from tsdb.parallel_consumer.record import Partition, Position, Record
from tsdb.parallel_consumer.tracker import OffsetTracker
from tsdb.parallel_consumer.tried import Tried
from tsdb.parallel_consumer.work import Work


@dataclass(slots=True, eq=False)
class PartitionWork:
    """One partition in one generation: from its assignment to its removal.

    tries: attempts recorded in the commit, of records not read again yet. barriers: records that run after all before
    them.
    backlog: records read but not admitted to the tracker yet. columns: blocks read but not admitted yet. full: the
    backlog does not fit the map.
    ended: the end offset reported by the source. aside: its record count when it was paused for being over quota, else
    0.
    record_bytes, came_at: mean size and time of the last arrival.
    touched: unfinished tasks with attempts to record in a commit, by slot. running: number of running records.
    draining: no further record begins. closed: removed; completions are late. dirty: something to commit.
    """

    place: Partition
    epoch: int
    topic_id: str
    tracker: OffsetTracker
    assigned_at: float
    read_to: int
    tries: Tried = field(default_factory=Tried)
    lanes: Lanes = field(default_factory=Lanes)
    barriers: deque[Work] = field(default_factory=deque)
    backlog: deque[Record] = field(default_factory=deque)
    columns: deque[Columns] = field(default_factory=deque)
    full: bool = False
    aside: int = 0
    record_bytes: int = 0
    came_at: float = 0.0
    touched: dict[int, Work] = field(default_factory=dict)
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

    def to_commit(self, units_max: int) -> Position:
        """Position and metadata of the current state."""
        position = self.tracker.position
        progress = Progress(self.tracker.finished_runs(), self._all_tries(position))
        metadata = encode_metadata(position, progress, self.topic_id, units_max=units_max)
        return Position(position, metadata)

    def _all_tries(self, position: int) -> list[Tries]:
        told = [
            Tries(work.record.offset, work.failures, work.crashes, work.running and work.letter is None, work.span)
            for work in self.touched.values()
        ]
        return [*told, *self.tries.rest(position)]

"""Registered: one partition's records on their way through the wait topic. One thread.

Records go in as they were read and come out in the same order, each once its copy is durable. What was acknowledged to
the source is `through`; what is open has a copy and no null record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tsdb.parallel_consumer.metadata import decode_metadata
from tsdb.parallel_consumer.record import Partition, Position, Record


class Copy(Enum):
    """How far the copy of a record is."""

    SENDING = "not answered yet, or to be sent again"
    DURABLE = "in the wait topic"
    REFUSED = "never will be: it is too large"


@dataclass(slots=True, eq=False)
class Entry:
    """One record that is not finished. dropped: it is not ours any more; its copy is not sent again."""

    record: Record
    key: bytes
    copy: Copy = Copy.SENDING
    dropped: bool = False


class Registered:
    """told: the last position that the consumer gave; at first the one that the source began with."""

    def __init__(self, place: Partition, start: Position, topic_id: str) -> None:
        self.place = place
        self.topic_id = topic_id
        self.read_to = start.next_offset
        self.told = start
        self.committed: Position | None = None
        self.handed_back: Position | None = None
        self._waiting: deque[Entry] = deque()  # Read, not handed over.
        self._open: dict[int, Entry] = {}  # By offset, ascending.
        self._end: int | None = None

    def add(self, entry: Entry) -> None:
        """Read, above all before it."""
        self.read_to = entry.record.offset + 1
        self._waiting.append(entry)
        self._open[entry.record.offset] = entry

    def ends(self, next_offset: int) -> None:
        """The source said that the partition ends there."""
        self.read_to = max(self.read_to, next_offset)
        self._end = next_offset

    def hand_over(self, count: int) -> Iterator[Record]:
        """The next records, at most `count`, as far as their copies are answered."""
        while count > 0 and self._waiting and self._waiting[0].copy is not Copy.SENDING:
            count -= 1
            yield self._waiting.popleft().record

    def take_end(self) -> int | None:
        """Where the partition ends, once all before was handed over; told once."""
        if self._waiting:
            return None
        end, self._end = self._end, None
        return end

    @property
    def through(self) -> int:
        """Everything below is finished, or has a durable copy."""
        for offset, entry in self._open.items():
            if entry.copy is not Copy.DURABLE:
                return offset
        return self.read_to

    @property
    def waiting(self) -> int:
        """Records read and not handed over."""
        return len(self._waiting)

    def take_finished(self) -> list[Entry]:
        """Those that the position told last says are finished; no more open then."""
        told = self.told
        runs = decode_metadata(told.next_offset, told.metadata, self.topic_id).finished.tolist()
        finished: list[Entry] = []
        at = 0
        for offset in list(self._open):
            while at < len(runs) and runs[at][1] <= offset:
                at += 1
            if offset < told.next_offset or (at < len(runs) and runs[at][0] <= offset):
                finished.append(self._open.pop(offset))
        return finished

    def take_rest(self) -> list[Entry]:
        """All that is open, dropped now; nothing is open then."""
        rest = list(self._open.values())
        for entry in rest:
            entry.dropped = True
        self._open.clear()
        self._waiting.clear()
        return rest

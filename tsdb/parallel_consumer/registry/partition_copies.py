"""PartitionCopies: follows the records of one partition through the wait topic. One thread.

Records leave in the order they were read, each once its copy is durable. `through` is acknowledged to the source; an
open record has a copy and no null record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.record import Position, Record, TopicPartition


class CopyState(Enum):
    """State of the copy of a record."""

    SENDING = "not answered yet, or to be sent again"
    DURABLE = "in the wait topic"
    REFUSED = "never will be: it is too large"


@dataclass(slots=True, eq=False)
class Entry:
    """One unfinished record. dropped: whether its partition was removed; its copy is then not sent again."""

    record: Record
    key: bytes
    copy: CopyState = CopyState.SENDING
    dropped: bool = False


class PartitionCopies:
    """Copies of one partition. reported: the last position from the consumer; at first the start position."""

    def __init__(self, topic_partition: TopicPartition, start: Position, topic_id: str) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.read_to = start.next_offset
        self.reported = start
        self.committed: Position | None = None
        self.handed_back: Position | None = None
        self._waiting: deque[Entry] = deque()  # Copies that were read and not handed over yet.
        self._open: dict[int, Entry] = {}  # Entries by offset, ascending.
        self._end: int | None = None

    def add(self, entry: Entry) -> None:
        """Add a read record, above all before it."""
        self.read_to = entry.record.offset + 1
        self._waiting.append(entry)
        self._open[entry.record.offset] = entry

    def ends(self, next_offset: int) -> None:
        """The source reported the end of the partition."""
        self.read_to = max(self.read_to, next_offset)
        self._end = next_offset

    def hand_over(self, count: int) -> Iterator[Record]:
        """The next records, at most `count`, up to the first unanswered copy."""
        while count > 0 and self._waiting and self._waiting[0].copy is not CopyState.SENDING:
            count -= 1
            yield self._waiting.popleft().record

    def take_end(self) -> int | None:
        """End of the partition, once all records before it were handed over; returned once."""
        if self._waiting:
            return None
        end, self._end = self._end, None
        return end

    @property
    def through(self) -> int:
        """All records below it are finished, or have a durable copy."""
        for offset, entry in self._open.items():
            if entry.copy is not CopyState.DURABLE:
                return offset
        return self.read_to

    @property
    def waiting(self) -> int:
        """Records read and not handed over."""
        return len(self._waiting)

    def take_finished(self) -> list[Entry]:
        """Remove and return open records that the last position marks as finished."""
        reported = self.reported
        runs = decode_metadata(reported.next_offset, reported.metadata, self.topic_id).finished.tolist()
        finished: list[Entry] = []
        at = 0
        for offset in list(self._open):
            while at < len(runs) and runs[at][1] <= offset:
                at += 1
            if offset < reported.next_offset or (at < len(runs) and runs[at][0] <= offset):
                finished.append(self._open.pop(offset))
        return finished

    def take_open(self) -> list[Entry]:
        """Remove and return all open records, marked as dropped."""
        rest = list(self._open.values())
        for entry in rest:
            entry.dropped = True
        self._open.clear()
        self._waiting.clear()
        return rest

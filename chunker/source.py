"""Partition source: the events of one partition that a group has read, as input of a replay. One thread."""

from __future__ import annotations

from collections import deque

from tsdb.log.interface import EndOfLog, Event, Group, TopicPartition
from tsdb.model.errors import LostOffsets

EVENTS_MAX = 4  # Batches that may wait for a partition that cannot apply; further batches are dropped and read again.


class PartitionSource:
    """A bounded queue that `put` fills. Events that do not fit are dropped, and read again when the queue has
    capacity."""

    def __init__(self, group: Group, place: TopicPartition) -> None:
        self._group = group
        self._place = place
        self._waiting: deque[Event] = deque()
        self._lost: LostOffsets | None = None
        self._dropped_from: int | None = None
        self.end_offset: int | None = None
        """End of the log at the last EndOfLog event."""

    def put(self, event: Event) -> None:
        """Add an event of this partition, or drop it when the queue is full."""
        if isinstance(event, EndOfLog):
            if self._dropped_from is None:
                self.end_offset = event.next_offset
                self._waiting.append(event)
        elif self._dropped_from is None and len(self._waiting) < EVENTS_MAX:
            self._waiting.append(event)
        elif self._dropped_from is None:
            self._dropped_from = int(event.offsets[0])

    def fail(self, error: LostOffsets) -> None:
        """Record the group's error that the next records are lost; the next poll raises it."""
        self._lost = error

    @property
    def has_events(self) -> bool:
        """Whether the next poll returns or raises something, or has to read dropped records again."""
        return bool(self._waiting) or self._lost is not None or self._dropped_from is not None

    def poll(self, timeout_s: float, *, max_records: int) -> list[Event]:
        """The queued events. Returns at once. Raises LostOffsets."""
        if self._lost is not None:
            error, self._lost = self._lost, None
            raise error
        events = list(self._waiting)
        self._waiting.clear()
        if self._dropped_from is not None:
            self._group.seek(*self._place, self._dropped_from)
            self._dropped_from = None
        return events

    def wake(self) -> None:
        """Does nothing: a poll never waits."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        """Implements LogReader.seek. Drops all queued events."""
        self._waiting.clear()
        self._dropped_from = self._lost = self.end_offset = None
        self._group.seek(topic, partition, next_offset)

    def pause(self, topic: str, partition: int) -> None:
        """Implements LogReader.pause. Drops all queued events."""
        self._waiting.clear()
        self._dropped_from = None
        self._group.pause(topic, partition)

    def close(self) -> None:
        """Does nothing: the group belongs to the member, which leaves it."""

"""Compaction: handles only the newest of the records of a key that arrive within a time window. Pure.

The oldest record starts the window, and a newer one does not extend it: a constantly written key is handled once per
window.
"""

from __future__ import annotations

from collections import deque

from tsdb.parallel_consumer.record import TopicPartition
from tsdb.parallel_consumer.scheduling.task import Task


class NewestByKey:
    """Tasks that wait for a newer record of their key."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[TopicPartition, bytes | None], Task] = {}
        self._due: deque[tuple[float, tuple[TopicPartition, bytes | None]]] = deque()

    def put(self, task: Task, now: float, linger_s: float) -> Task | None:
        """Add a task; returns the task it replaces."""
        key = task.owner.topic_partition, task.record.key
        older = self._waiting.get(key)
        self._waiting[key] = task
        if older is None:
            self._due.append((now + linger_s, key))
        return older

    def take_due(self, now: float) -> list[Task]:
        """Remove and return tasks whose window is over, oldest first."""
        taken: list[Task] = []
        while self._due and self._due[0][0] <= now:
            _, key = self._due.popleft()
            if key in self._waiting:
                taken.append(self._waiting.pop(key))
        return taken

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the next partition is due; None when no partition waits."""
        return max(0.0, self._due[0][0] - now) if self._due else None

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        self._waiting = {key: task for key, task in self._waiting.items() if not task.owner.closed}
        self._due = deque(item for item in self._due if item[1] in self._waiting)

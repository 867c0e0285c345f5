"""Compaction: handles only the newest of the records of a key that arrive within a time window. Pure.

The oldest record starts the window, and a newer one does not extend it: a constantly written key is handled once per
window.
"""

from __future__ import annotations

from collections import deque

from tsdb.parallel_consumer.record import Partition
from tsdb.parallel_consumer.work import Work


class Newest:
    """Tasks that wait for a newer record of their key."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Partition, bytes | None], Work] = {}
        self._due: deque[tuple[float, tuple[Partition, bytes | None]]] = deque()

    def put(self, work: Work, now: float, linger_s: float) -> Work | None:
        """Add a task; returns the task it replaces."""
        key = work.owner.place, work.record.key
        older = self._waiting.get(key)
        self._waiting[key] = work
        if older is None:
            self._due.append((now + linger_s, key))
        return older

    def take_due(self, now: float) -> list[Work]:
        """Remove and return tasks whose window is over, oldest first."""
        taken: list[Work] = []
        while self._due and self._due[0][0] <= now:
            _, key = self._due.popleft()
            if key in self._waiting:
                taken.append(self._waiting.pop(key))
        return taken

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the next is due; None: none waits."""
        return max(0.0, self._due[0][0] - now) if self._due else None

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        self._waiting = {key: work for key, work in self._waiting.items() if not work.owner.closed}
        self._due = deque(item for item in self._due if item[1] in self._waiting)

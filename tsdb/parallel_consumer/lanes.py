"""Lanes: one queue for each active key of a partition. A lane runs one record at a time and lives while it has any."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from tsdb.parallel_consumer.order import Place
from tsdb.parallel_consumer.work import Work


class Lanes:
    """Lanes of one partition, by key. A value of None: one record runs and none waits."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Work] | None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, work: Work) -> bool:
        """Take a place at the end of the work's lane; whether it may run now."""
        if work.lane is Place.FREE:
            return True
        if work.lane not in self._waiting:
            self._waiting[work.lane] = None
            return True
        queue = self._waiting[work.lane]
        if queue is None:
            queue = self._waiting[work.lane] = deque()
        queue.append(work)
        return False

    def leave(self, work: Work) -> Work | None:
        """The work is finished: the next of its lane, which may run now."""
        if isinstance(work.lane, Place):
            return None
        queue = self._waiting[work.lane]
        if queue:
            return queue.popleft()
        del self._waiting[work.lane]
        return None

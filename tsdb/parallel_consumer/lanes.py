"""Lanes: one queue per active key of a partition. A lane runs one record at a time and is removed when empty."""

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

    def __contains__(self, lane: Hashable) -> bool:
        return lane in self._waiting

    def enter(self, work: Work) -> bool:
        """Append to the task's lane; whether it may run now."""
        lane = work.lane
        if lane is Place.FREE:
            return True
        waiting = self._waiting
        if lane not in waiting:
            waiting[lane] = None
            return True
        queue = waiting[lane]
        if queue is None:
            queue = waiting[lane] = deque()
        queue.append(work)
        return False

    def enter_newest(self, work: Work) -> tuple[bool, Work | None]:
        """As enter, but replace the last waiting task of the lane if it has the same key. Also returns the replaced
        task.
        """
        queue = self._waiting.get(work.lane)
        if queue and queue[-1].record.key == work.record.key and not queue[-1].run:
            older = queue.pop()
            queue.append(work)
            return False, older
        return self.enter(work), None

    def instead(self, work: Work, parts: list[Work]) -> list[Work]:
        """Replace the running task by its parts, at least one, in order; returns those that may run at once."""
        lane = work.lane
        if isinstance(lane, Place):
            return parts
        queue = self._waiting[lane]
        if queue is None:
            queue = self._waiting[lane] = deque()
        queue.extendleft(reversed(parts[1:]))
        return parts[:1]

    def take_followers(self, work: Work, count: int, size: int) -> list[Work]:
        """Take tasks that wait behind this one, to run after it one by one: at most `count`, none larger than `size`.

        Stops at a task that was running at a crash: it runs alone.
        """
        queue = self._waiting.get(work.lane)
        taken: list[Work] = []
        while queue and len(taken) < count and queue[0].size <= size and not queue[0].crashes:
            taken.append(queue.popleft())
        return taken

    def give_back(self, works: list[Work]) -> None:
        """Put back followers that did not run, in order; the task before them is not finished."""
        lane = works[0].lane
        queue = self._waiting[lane]
        if queue is None:
            queue = self._waiting[lane] = deque()
        queue.extendleft(reversed(works))

    def leave(self, work: Work) -> Work | None:
        """Remove a finished task; returns the next of its lane, which may run now."""
        lane = work.lane
        if isinstance(lane, Place):
            return None
        queue = self._waiting[lane]
        if queue:
            return queue.popleft()
        del self._waiting[lane]
        return None

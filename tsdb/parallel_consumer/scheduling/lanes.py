"""Lanes: one queue per active key of a partition. A lane runs one record at a time and is removed when empty."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from tsdb.parallel_consumer.order import SpecialLane
from tsdb.parallel_consumer.scheduling.task import Task


class Lanes:
    """Lanes of one partition, by key. A value of None means that one record runs and none waits."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Task] | None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, lane: Hashable) -> bool:
        return lane in self._waiting

    def enter(self, task: Task) -> bool:
        """Append to the task's lane; whether it may run now."""
        lane = task.lane
        if lane is SpecialLane.UNORDERED:
            return True
        waiting = self._waiting
        if lane not in waiting:
            waiting[lane] = None
            return True
        queue = waiting[lane]
        if queue is None:
            queue = waiting[lane] = deque()
        queue.append(task)
        return False

    def enter_newest(self, task: Task) -> tuple[bool, Task | None]:
        """Does what `enter` does, but replaces the last waiting task of the lane if it has the same key. Also returns
        the replaced task."""
        queue = self._waiting.get(task.lane)
        if queue and queue[-1].record.key == task.record.key and not queue[-1].run:
            older = queue.pop()
            queue.append(task)
            return False, older
        return self.enter(task), None

    def replace_running(self, task: Task, parts: list[Task]) -> list[Task]:
        """Replace the running task by its parts, at least one, in order; returns those that may run at once."""
        lane = task.lane
        if isinstance(lane, SpecialLane):
            return parts
        queue = self._waiting[lane]
        if queue is None:
            queue = self._waiting[lane] = deque()
        queue.extendleft(reversed(parts[1:]))
        return parts[:1]

    def take_followers(self, task: Task, count: int, size: int) -> list[Task]:
        """Take tasks that wait behind this one, to run after it one by one: at most `count`, none larger than `size`.

        Stops at a task that was running at a crash: it runs alone.
        """
        queue = self._waiting.get(task.lane)
        taken: list[Task] = []
        while queue and len(taken) < count and queue[0].size <= size and not queue[0].crashes:
            taken.append(queue.popleft())
        return taken

    def give_back(self, tasks: list[Task]) -> None:
        """Put back followers that did not run, in order; the task before them is not finished."""
        lane = tasks[0].lane
        queue = self._waiting[lane]
        if queue is None:
            queue = self._waiting[lane] = deque()
        queue.extendleft(reversed(tasks))

    def leave(self, task: Task) -> Task | None:
        """Remove a finished task; returns the next of its lane, which may run now."""
        lane = task.lane
        if isinstance(lane, SpecialLane):
            return None
        queue = self._waiting[lane]
        if queue:
            return queue.popleft()
        del self._waiting[lane]
        return None

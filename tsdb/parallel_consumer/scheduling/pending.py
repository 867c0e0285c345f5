"""Pending: keeps tasks that wait for their next attempt, for a limit, or for an unavailable dependency. One thread."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from tsdb.parallel_consumer.scheduling.task import Task


class Pending:
    """`blocked`: number of tasks that wait for an unavailable dependency."""

    def __init__(self) -> None:
        self._tasks: set[Task] = set()
        self._blocked: set[Task] = set()  # These tasks are a subset of the tasks above.
        self._timers: list[tuple[float, int, Task, int]] = []  # Due time, tie-breaker, task, and the task's run.
        self._numbers = itertools.count()
        self._succeeded_since_block = True

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @property
    def blocked(self) -> int:
        return len(self._blocked)

    def blocked_tasks(self) -> Iterator[Task]:
        """Tasks that wait for an unavailable dependency."""
        return iter(self._blocked)

    def hold(self, task: Task) -> None:
        """Hold the task until `take`."""
        self._tasks.add(task)

    def later(self, task: Task, at: float) -> None:
        """Hold the task until monotonic second `at`."""
        self._tasks.add(task)
        heapq.heappush(self._timers, (at, next(self._numbers), task, task.run))

    def block(self, task: Task, at: float) -> None:
        """Hold the task until `at`, or until another one succeeds."""
        if task.blocked == 1:
            self._succeeded_since_block = False
        self._blocked.add(task)
        self.later(task, at)

    def take(self, task: Task) -> bool:
        """Release the task. Returns whether it was pending."""
        if task not in self._tasks:
            return False
        self._tasks.discard(task)
        self._blocked.discard(task)
        return True

    def take_due(self, now: float) -> list[Task]:
        """Release tasks whose time has come."""
        taken: list[Task] = []
        while self._timers and self._timers[0][0] <= now:
            _, _, task, run = heapq.heappop(self._timers)
            if task.run == run and self.take(task):
                taken.append(task)
        return taken

    def take_blocked(self) -> list[Task]:
        """Called after a success: release all blocked tasks, the last read first.

        Only the first success after an outage releases them: a single blocked record must not be tried again at every
        success of another.

        """
        if self._succeeded_since_block:
            return []
        self._succeeded_since_block = True
        blocked = sorted(self._blocked, key=lambda task: -task.slot)
        return [task for task in blocked if self.take(task)]

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the next is due; None: no time is set."""
        return max(0.0, self._timers[0][0] - now) if self._timers else None

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        for task in [task for task in self._tasks if task.owner.closed]:
            self.take(task)

"""Pending: tasks that wait for their next attempt, for a limit, or for an unavailable dependency. One thread."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from tsdb.parallel_consumer.work import Work


class Pending:
    """`blocked`: number of tasks that wait for an unavailable dependency."""

    def __init__(self) -> None:
        self._works: set[Work] = set()
        self._blocked: set[Work] = set()  # A subset of the tasks.
        self._timers: list[tuple[float, int, Work, int]] = []  # Due time, tie-breaker, task, its run.
        self._numbers = itertools.count()
        self._succeeded_since_block = True

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    @property
    def blocked(self) -> int:
        return len(self._blocked)

    def held_up(self) -> Iterator[Work]:
        """Tasks that wait for an unavailable dependency."""
        return iter(self._blocked)

    def hold(self, work: Work) -> None:
        """Hold the task until `take`."""
        self._works.add(work)

    def later(self, work: Work, at: float) -> None:
        """Hold the task until monotonic second `at`."""
        self._works.add(work)
        heapq.heappush(self._timers, (at, next(self._numbers), work, work.run))

    def block(self, work: Work, at: float) -> None:
        """Hold the task until `at`, or until another one succeeds."""
        if work.blocked == 1:
            self._succeeded_since_block = False
        self._blocked.add(work)
        self.later(work, at)

    def take(self, work: Work) -> bool:
        """Release the task; whether it was held."""
        if work not in self._works:
            return False
        self._works.discard(work)
        self._blocked.discard(work)
        return True

    def take_due(self, now: float) -> list[Work]:
        """Release tasks whose time has come."""
        taken: list[Work] = []
        while self._timers and self._timers[0][0] <= now:
            _, _, work, run = heapq.heappop(self._timers)
            if work.run == run and self.take(work):
                taken.append(work)
        return taken

    def take_blocked(self) -> list[Work]:
        """After a success: release all blocked tasks, the last read first.

        Only the first success after an outage releases them: a single blocked record must not be tried again at every
        success of another.
        """
        if self._succeeded_since_block:
            return []
        self._succeeded_since_block = True
        blocked = sorted(self._blocked, key=lambda work: -work.slot)
        return [work for work in blocked if self.take(work)]

    def due_in_s(self, now: float) -> float | None:
        """Seconds until the next is due; None: no time is set."""
        return max(0.0, self._timers[0][0] - now) if self._timers else None

    def drop_closed(self) -> None:
        """Forget tasks of removed partitions."""
        for work in [work for work in self._works if work.owner.closed]:
            self.take(work)

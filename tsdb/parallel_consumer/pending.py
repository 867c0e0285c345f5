"""Pending: works that wait for their next try, for a limit, or for something that is away. One thread."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from tsdb.parallel_consumer.work import Work


class Pending:
    """`blocked`: how many wait for something that is away."""

    def __init__(self) -> None:
        self._works: set[Work] = set()
        self._blocked: set[Work] = set()  # Of the works.
        self._timers: list[tuple[float, int, Work, int]] = []  # When due, tie-breaker, what, of which run.
        self._numbers = itertools.count()
        self._succeeded_since_block = True

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    @property
    def blocked(self) -> int:
        return len(self._blocked)

    def held_up(self) -> Iterator[Work]:
        """Those that wait for something that is away."""
        return iter(self._blocked)

    def hold(self, work: Work) -> None:
        """Until somebody takes it."""
        self._works.add(work)

    def later(self, work: Work, at: float) -> None:
        """Until then, monotonic seconds."""
        self._works.add(work)
        heapq.heappush(self._timers, (at, next(self._numbers), work, work.run))

    def block(self, work: Work, at: float) -> None:
        """Until then, or until another succeeds."""
        if work.blocked == 1:
            self._succeeded_since_block = False
        self._blocked.add(work)
        self.later(work, at)

    def take(self, work: Work) -> bool:
        """It waits no more; whether it did."""
        if work not in self._works:
            return False
        self._works.discard(work)
        self._blocked.discard(work)
        return True

    def take_due(self, now: float) -> list[Work]:
        """Those that have waited long enough."""
        taken: list[Work] = []
        while self._timers and self._timers[0][0] <= now:
            _, _, work, run = heapq.heappop(self._timers)
            if work.run == run and self.take(work):
                taken.append(work)
        return taken

    def take_blocked(self) -> list[Work]:
        """After a success: all that are blocked, the last read first.

        The first success after an outage ends everybody's pause. Only the first: a record that alone is blocked must
        not be tried again each time that another succeeds.
        """
        if self._succeeded_since_block:
            return []
        self._succeeded_since_block = True
        blocked = sorted(self._blocked, key=lambda work: -work.slot)
        return [work for work in blocked if self.take(work)]

    def due_in_s(self, now: float) -> float | None:
        """Seconds until one has waited long enough; None: no time is set."""
        return max(0.0, self._timers[0][0] - now) if self._timers else None

    def drop_closed(self) -> None:
        """Forget what belongs to partitions that have gone."""
        for work in [work for work in self._works if work.owner.closed]:
            self.take(work)

"""A timer on a manual clock: calls run when the test fires them."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from tsdb.model.clock import ManualClock


class ManualTimer:
    """ingest.appends.timer.Timer, for one thread."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._numbers = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def now(self) -> float:
        return self._clock.monotonic()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now() + seconds, next(self._numbers), call))

    @property
    def outstanding(self) -> int:
        """Calls that have not come yet."""
        return len(self._due)

    def fire(self) -> int:
        """Run the calls that are due; returns how many."""
        fired = 0
        while self._due and self._due[0][0] <= self.now():
            heapq.heappop(self._due)[2]()
            fired += 1
        return fired

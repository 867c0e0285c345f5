"""Limits: so many records a second. Exact over any stretch, whenever it is asked. Pure."""

from __future__ import annotations

import math

from tsdb.parallel_consumer.control import FREE


class Limit:
    """rate: a second; -1 free, 0 none. burst_s: what was not used in so many seconds may be made up for.

    Keeps one number: when what was taken so far is used up at this rate (a virtual schedule, as in GCRA).
    """

    __slots__ = ("_burst_s", "_rate", "_used_until")

    def __init__(self, rate: float, burst_s: float = 0.0) -> None:
        self._rate = rate
        self._burst_s = burst_s
        self._used_until = -math.inf

    def opens_in_s(self, now: float) -> float:
        """Seconds until one more may begin; 0: now; inf: never."""
        if self._rate == FREE:
            return 0.0
        if self._rate == 0:
            return math.inf
        return max(0.0, self._used_until - now)

    def take(self, count: int, now: float) -> None:
        """So many begin now."""
        if self._rate > 0:
            # One that comes after a pause may not be followed by more than the burst.
            self._used_until = max(self._used_until, now - self._burst_s) + count / self._rate

    def idle(self, now: float) -> bool:
        """Whether it is as good as new."""
        return self._used_until <= now - self._burst_s

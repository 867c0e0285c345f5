"""Limit: bounds the rate of records per second, exact over any interval. Pure."""

from __future__ import annotations

import math

from tsdb.parallel_consumer.control import UNLIMITED


class Limit:
    """rate: records per second; -1 means unlimited, 0 none. burst_s: seconds of unused rate that may be used later.

    It keeps one number: the time at which this rate would have passed the records taken so far (a virtual schedule, as
    in GCRA).

    """

    __slots__ = ("_burst_s", "_rate", "_used_until")

    def __init__(self, rate: float, burst_s: float = 0.0) -> None:
        self._rate = rate
        self._burst_s = burst_s
        self._used_until = -math.inf

    def opens_in_s(self, now: float) -> float:
        """Seconds until one more record may begin. 0 means now, inf means never."""
        if self._rate == UNLIMITED:
            return 0.0
        if self._rate == 0:
            return math.inf
        return max(0.0, self._used_until - now)

    def take(self, count: int, now: float) -> None:
        """`count` records begin now."""
        if self._rate > 0:
            # After a pause at most the burst may follow at once.
            self._used_until = max(self._used_until, now - self._burst_s) + count / self._rate

    def idle(self, now: float) -> bool:
        """Whether the limit behaves like a new one."""
        return self._used_until <= now - self._burst_s

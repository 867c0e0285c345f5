"""Time as an argument, so that a test can own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """now_ms: wall clock, ms since epoch UTC. monotonic: seconds on a clock that never steps."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)  # Asked once a record by some: a call less.

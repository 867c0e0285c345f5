"""Clock: time as an argument, so that a test controls it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """now_ms: wall clock, ms since epoch UTC. monotonic: seconds on a clock that never steps."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Assigned directly, because some callers call it once for each record, and this saves one call.
    monotonic = staticmethod(time.monotonic)

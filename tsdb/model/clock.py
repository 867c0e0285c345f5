"""Clocks, passed as arguments so that a test can control time. Wall time is in ms, UTC; monotonic time is in
seconds."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Source of time for components. It is an argument, so that a test can pass a ManualClock."""

    def now_ms(self) -> int:
        """Wall clock, ms since epoch UTC."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds` seconds."""


class SystemClock:
    """The clocks of the machine."""

    monotonic = staticmethod(time.monotonic)  # Each partition of each read calls it, so it has no frame of ours.

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only by advance, sleep and step; advance and sleep move both times. Thread-safe."""

    def __init__(self, now_ms: int = 0) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        with self._lock:
            return self._now_ms

    def monotonic(self) -> float:
        with self._lock:
            return self._elapsed_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Move both times forward by ms."""
        with self._lock:
            self._now_ms += ms
            self._elapsed_ms += ms

    def step(self, ms: int) -> None:
        """Step only the wall clock, like a clock correction. `ms` may be negative."""
        with self._lock:
            self._now_ms += ms

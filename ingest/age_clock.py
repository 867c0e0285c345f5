"""Age clock: time since an event, never less than the real time.

A monotonic clock stops while a virtual machine is suspended, and a wall clock may step back. Between two readings this
clock advances by the larger of both differences, because an age decides whether stores still keep a series.
"""

from __future__ import annotations

import threading

from tsdb.model.clock import Clock


class AgeClock:
    """Milliseconds from 1 on that never decrease; comparable within one process. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below.
        self._wall_ms = clock.now_ms()
        self._monotonic_ms = clock.monotonic() * 1000
        self._age_ms = 1.0

    def now_ms(self) -> int:
        """The current time, to compare with earlier results of this method."""
        with self._lock:
            wall_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic() * 1000
            self._age_ms += max(0.0, wall_ms - self._wall_ms, monotonic_ms - self._monotonic_ms)
            self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
            return int(self._age_ms)

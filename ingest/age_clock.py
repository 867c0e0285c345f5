"""Age clock: how long ago something happened, never less than it really was.

A monotonic clock stands still while a virtual machine is suspended, a wall clock may step back. Ages that decide
whether stores still remember a series count, between two looks, whichever of the two moved further.
"""

from __future__ import annotations

import threading

from tsdb.model.clock import Clock


class AgeClock:
    """Milliseconds that only grow, from 1; comparable within one process. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below.
        self._wall_ms = clock.now_ms()
        self._monotonic_ms = clock.monotonic() * 1000
        self._age_ms = 1.0

    def now_ms(self) -> int:
        """Now, for comparing with earlier answers."""
        with self._lock:
            wall_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic() * 1000
            self._age_ms += max(0.0, wall_ms - self._wall_ms, monotonic_ms - self._monotonic_ms)
            self._wall_ms, self._monotonic_ms = wall_ms, monotonic_ms
            return int(self._age_ms)

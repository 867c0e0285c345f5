"""Breaker: begins no record while all fail, then tries a single record. Pure.

CLOSED -(failures in a row)-> OPEN -(its time is over)-> PROBING -(success)-> CLOSED, -(failure)-> OPEN, twice as long.
"""

from __future__ import annotations

import math
from enum import Enum


class State(Enum):
    CLOSED = "closed"  # All records may begin.
    OPEN = "open"  # None may.
    PROBING = "probing"  # One task may run; its result decides.


class Breaker:
    """failures: number in a row that opens it; 0: it never opens. `opened`: how often it opened."""

    def __init__(self, failures: int, open_s: float, open_s_max: float) -> None:
        self._limit = failures
        self._first_s = open_s
        self._longest_s = open_s_max
        self._open_s = open_s
        self._in_row = 0
        self._opens_at = 0.0  # Time at which the next probe may begin.
        self.state = State.CLOSED
        self.opened = 0

    def allowed(self, now: float) -> float:
        """How many more records may begin now: all (inf), one or none."""
        if self.state is State.CLOSED:
            return math.inf
        # A probe of a removed partition never reports a result, so after the same time another one may begin.
        return 1 if now >= self._opens_at else 0

    def opens_in_s(self, now: float) -> float | None:
        """Seconds until a probe may begin; None: it is closed."""
        return None if self.state is State.CLOSED else max(0.0, self._opens_at - now)

    def began(self, now: float) -> None:
        if self.state is not State.CLOSED:
            self.state = State.PROBING
            self._opens_at = now + self._open_s

    def succeeded(self) -> None:
        self._in_row = 0
        if self.state is State.PROBING:
            self.state = State.CLOSED
            self._open_s = self._first_s

    def failed(self, now: float) -> None:
        """A record failed in a way that could affect all."""
        self._in_row += 1
        if self.state is State.PROBING:
            self._open_s = min(self._open_s * 2, self._longest_s)
            self._open(now)
        elif self.state is State.CLOSED and 0 < self._limit <= self._in_row:
            self._open(now)

    def _open(self, now: float) -> None:
        self.state = State.OPEN
        self.opened += 1
        self._opens_at = now + self._open_s

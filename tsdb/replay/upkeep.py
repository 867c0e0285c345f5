"""Upkeep: the rounds of maintenance of some heads, as often as there is something to do.

A head has a round every BUSY_S while records come, while a round finds work, and for two rounds afterwards, because a
fold at rest compares two of them. Then it rests: a round every REST_S looks at what reads have added to its caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tsdb.head.head import Maintained
from tsdb.model.clock import Clock

BUSY_S = 0.25
REST_S = 5.0
QUIET_ROUNDS = 2


class Maintainable(Protocol):
    """A head, or a stage with a head inside."""

    @property
    def next_offset(self) -> int:
        """Offset after the last applied record."""

    def maintain(self) -> Maintained:
        """Make one round of maintenance; its counts."""


@dataclass(slots=True)
class _Pace:
    """State of one head's maintenance. next_offset: the head's next offset at its last round. busy_rounds: rounds that
    are left at the short interval.
    """

    head: Maintainable
    next_offset: int
    rests_until: float = 0.0
    busy_rounds: int = QUIET_ROUNDS


class Upkeep:
    """Paces of some heads. One thread uses it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paces: dict[int, _Pace] = {}
        self._next_at = clock.monotonic() + BUSY_S

    def due_in_s(self) -> float:
        """Seconds until the next rounds."""
        return max(0.0, self._next_at - self._clock.monotonic())

    def hurry(self, without_capacity: Iterable[int] = ()) -> None:
        """Make the next round come within BUSY_S: records were applied, or these partitions wait for memory that a
        round frees.
        """
        self._next_at = min(self._next_at, self._clock.monotonic() + BUSY_S)
        for number in without_capacity:
            if number in self._paces:
                self._paces[number].busy_rounds = QUIET_ROUNDS

    def run(self, heads: Mapping[int, Maintainable]) -> None:
        """The rounds that are due. heads: all heads by partition."""
        now = self._clock.monotonic()
        self._paces = {number: self._pace(number, head) for number, head in heads.items()}
        for pace in self._paces.values():
            self._round(pace, now)
        busy = any(pace.busy_rounds for pace in self._paces.values())
        self._next_at = now + (BUSY_S if busy else REST_S)

    def _pace(self, number: int, head: Maintainable) -> _Pace:
        known = self._paces.get(number)
        return known if known is not None and known.head is head else _Pace(head, head.next_offset)

    @staticmethod
    def _round(pace: _Pace, now: float) -> None:
        moved = pace.head.next_offset != pace.next_offset
        if not moved and not pace.busy_rounds and now < pace.rests_until:
            return
        pace.next_offset, pace.rests_until = pace.head.next_offset, now + REST_S
        if pace.head.maintain().more or moved:
            pace.busy_rounds = QUIET_ROUNDS
        else:
            pace.busy_rounds = max(0, pace.busy_rounds - 1)

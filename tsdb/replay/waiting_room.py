"""Waiting room: the partitions of a replay that have no room in memory, and when to look at each again. One thread; any
may ask for `error_of`."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded
from tsdb.ops.logs import get_logger

AGAIN_S = 0.25  # As often as heads are maintained, which is what makes room.
WARN_EVERY_S = 60.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Wait:
    """again_at: when to look again, monotonic seconds."""

    error: Overloaded
    again_at: float


class WaitingRoom:
    """A partition is in it from `enter` to `leave`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[int, _Wait] = {}
        self._warned_at: dict[int, float] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._waits

    def error_of(self, partition: int) -> Overloaded | None:
        """Why a partition waits; None when it does not."""
        wait = self._waits.get(partition)
        return wait.error if wait else None

    def enter(self, partition: int, error: Overloaded) -> None:
        """Wait, or wait again. Said in the log once a minute: a partition at its limit comes and goes."""
        now = self._clock.monotonic()
        self._waits[partition] = _Wait(error, now + AGAIN_S)
        if now - self._warned_at.get(partition, now - WARN_EVERY_S) >= WARN_EVERY_S:
            self._warned_at[partition] = now
            log.warning("partition waits for memory", partition=partition, error=error.message)

    def leave(self, partition: int) -> None:
        """It has room, or begins afresh."""
        self._waits.pop(partition, None)

    def due(self) -> list[int]:
        """Partitions to look at again now."""
        now = self._clock.monotonic()
        return [partition for partition, wait in self._waits.items() if wait.again_at <= now]

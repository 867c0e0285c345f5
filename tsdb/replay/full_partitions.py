"""Full partitions: the partitions of a replay whose heads are at their memory limit, and the time of the next check of
each.

One thread; any thread may call `error_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded
from tsdb.ops.logs import get_logger

AGAIN_S = 0.25  # The same interval as the maintenance of heads, because maintenance frees memory.
WARN_EVERY_S = 60.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Wait:
    """again_at: monotonic time of the next check."""

    error: Overloaded
    again_at: float


class FullPartitions:
    """A partition is in it from `enter` to `leave`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waits: dict[int, _Wait] = {}
        self._warned_at: dict[int, float] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._waits

    def error_of(self, partition: int) -> Overloaded | None:
        """The error that a partition waits for; None when it does not wait."""
        wait = self._waits.get(partition)
        return wait.error if wait else None

    def enter(self, partition: int, error: Overloaded) -> None:
        """Start a wait, or wait again. Logged once a minute, because a partition at its limit comes and goes."""
        now = self._clock.monotonic()
        self._waits[partition] = _Wait(error, now + AGAIN_S)
        if now - self._warned_at.get(partition, now - WARN_EVERY_S) >= WARN_EVERY_S:
            self._warned_at[partition] = now
            log.warning("partition waits for memory", partition=partition, error=error.message)

    def leave(self, partition: int) -> None:
        """End the wait: the partition has capacity, or starts afresh."""
        self._waits.pop(partition, None)

    def due_in_s(self) -> float | None:
        """Seconds until the next check is due; None: no partition waits."""
        if not self._waits:
            return None
        return max(0.0, min(wait.again_at for wait in self._waits.values()) - self._clock.monotonic())

    def due(self) -> list[int]:
        """Partitions whose next check is due."""
        now = self._clock.monotonic()
        return [partition for partition, wait in self._waits.items() if wait.again_at <= now]

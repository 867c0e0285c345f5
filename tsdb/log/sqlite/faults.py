"""Faults that an embedded log injects on request: the worst that real brokers do, repeatable by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum


class Fate(Enum):
    """Outcome of one append, with or without a fault."""

    STORED = "stored and acknowledged"
    ACK_LOST = "stored, but answered Unavailable"
    FAILED = "not stored, and answered Unavailable"


@dataclass(slots=True)
class FaultPlan:
    """Shares are probabilities in [0, 1], drawn per append, or per group of appends where noted.

    gap_share: up to gap_max offsets are skipped after the record. ack_lost_share, failed_share: see Fate.
    step_back_share: per group, the broker's clock stands step_back_ms behind. slow_share: per group, the answer takes
    slow_s longer. One thread draws: the log's writer.
    """

    seed: int = 0
    gap_share: float = 0.0
    gap_max: int = 3
    ack_lost_share: float = 0.0
    failed_share: float = 0.0
    step_back_share: float = 0.0
    step_back_ms: int = 0
    slow_share: float = 0.0
    slow_s: float = 0.0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def gap(self) -> int:
        """Number of offsets to skip after a record."""
        return self._random.randint(1, self.gap_max) if self._happens(self.gap_share) else 0

    def fate(self) -> Fate:
        """Outcome of the next append."""
        if self._happens(self.failed_share):
            return Fate.FAILED
        return Fate.ACK_LOST if self._happens(self.ack_lost_share) else Fate.STORED

    def broker_ms(self, now_ms: int) -> int:
        """Broker time of the next group."""
        return now_ms - self.step_back_ms if self._happens(self.step_back_share) else now_ms

    def delay_s(self) -> float:
        """Extra delay of the next group, in seconds."""
        return self.slow_s if self._happens(self.slow_share) else 0.0

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share

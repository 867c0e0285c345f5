"""What a source of the agent measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Measured:
    """One sample; labels are canonical, ts_ms is ms since epoch UTC."""

    canonical: bytes
    ts_ms: int
    value: float


class Source(Protocol):
    """Measures when asked. Never raises for what it cannot measure: that is left out, or shows in `up`."""

    def measure(self, now_ms: int) -> list[Measured]:
        """Samples of now."""

    def missed(self, now_ms: int) -> list[Measured]:
        """Samples of a round that begins while `measure` is still at an earlier one; called from another thread."""

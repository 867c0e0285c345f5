"""Samples and sources of the agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Measured:
    """One sample. labels are canonical; ts_ms is in ms since the epoch, UTC."""

    canonical: bytes
    ts_ms: int
    value: float


class SampleSource(Protocol):
    """A source of samples. A failed measurement raises nothing: its samples are left out, or `up` is 0."""

    def measure(self, now_ms: int) -> list[Measured]:
        """The current samples, with the time now_ms."""

    def missed(self, now_ms: int) -> list[Measured]:
        """Samples of a round that begins while `measure` is busy with an earlier one. Called on another thread."""

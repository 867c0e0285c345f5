"""Samples and sources of the agent.

It remembers the series of a source's last round, so that those that vanish get a stale marker.

Without a marker a query shows the last value of such a series for its whole lookback, five minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tsdb.client import Exemplar
from tsdb.model.histograms import HistogramColumns
from tsdb.model.stale import STALE


@dataclass(frozen=True, slots=True)
class Measured:
    """One sample. labels are canonical; ts_ms is in ms since the epoch, UTC. exemplars: those of the same series.

    start_ms: when its counter began, 0: unknown. histogram: columns with one native histogram, whose sum is `value`.
    """

    canonical: bytes
    ts_ms: int
    value: float
    exemplars: tuple[Exemplar, ...] = ()
    start_ms: int = 0
    histogram: HistogramColumns | None = None


class SampleSource(Protocol):
    """A source of samples. A failed measurement raises nothing: its samples are left out, or `up` is 0."""

    def measure(self, now_ms: int) -> list[Measured]:
        """The current samples, with the time now_ms."""

    def missed(self, now_ms: int) -> list[Measured]:
        """Samples of a round that begins while `measure` is busy with an earlier one. Called on another thread."""


class Staleness:
    """Finds the series of one source that vanished. present: series of the last round. One thread."""

    def __init__(self) -> None:
        self.present: set[bytes] = set()

    def round(self, present: Collection[bytes], now_ms: int) -> list[Measured]:
        """Stale markers of the series that were present in the last round and are not in this one."""
        gone = self.present.difference(present)
        self.present = set(present)
        return [Measured(canonical, now_ms, STALE) for canonical in sorted(gone)]

"""Ranges: the sample times in which each path is checked, as the coverage of the system allows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tsdb.canary.layout import Layout
from tsdb.v1 import common_pb2, reader_pb2

RANGE_TICKS = 240  # Sample times of one check: 40 minutes at 10 s.
SEAM_TICKS = RANGE_TICKS // 2  # Ticks on each side of the seam.


@dataclass(frozen=True, slots=True)
class Range:
    """The range [start_ms, end_ms) of sample time."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class NotYet:
    """A path without anything to check. It does not count as a failure. reason: no_samples, memory_has_all,
    no_history.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class CoverageStart:
    """Where memory begins. first_ms, last_ms: lowest and highest start of coverage of the partitions that no longer
    have their whole log; None where all have it. has_history: whether the load of history has begun for each of these
    partitions.
    """

    first_ms: int | None
    last_ms: int | None
    has_history: bool


def seam_of(
    states: Sequence[common_pb2.PartitionState],
    history: Sequence[reader_pb2.HistoryState],
    partitions: Collection[int],
) -> CoverageStart:
    """The seam of the partitions that have samples of the canary."""
    cut = [state for state in states if state.partition in partitions and not state.from_start]
    if not cut:
        return CoverageStart(None, None, has_history=False)
    starts = [state.coverage_start_ms for state in cut]
    loaded = {state.partition for state in history}
    return CoverageStart(min(starts), max(starts), has_history=all(state.partition in loaded for state in cut))


def memory_range(layout: Layout, seam: CoverageStart, end_ms: int) -> Range:
    """The newest sample times that memory alone answers, up to end_ms."""
    start_ms = end_ms - RANGE_TICKS * layout.period_ms
    return Range(start_ms if seam.last_ms is None else min(max(start_ms, seam.last_ms), end_ms), end_ms)


def seam_range(layout: Layout, seam: CoverageStart, end_ms: int) -> Range | NotYet:
    """Sample times on both sides of the seam."""
    if seam.first_ms is None or seam.last_ms is None:
        return NotYet("memory_has_all")
    if not seam.has_history:
        return NotYet("no_history")
    side_ms = SEAM_TICKS * layout.period_ms
    return Range(seam.first_ms - side_ms, min(seam.last_ms + side_ms, end_ms))


def history_range(layout: Layout, seam: CoverageStart, depth_ms: int, piece: int) -> Range | NotYet:
    """Piece number `piece` of the sample times that history alone answers; the pieces repeat after depth_ms.

    The pieces end before the range around the seam, because a store that has just started has a few samples from before
    its coverage.
    """
    if seam.first_ms is None:
        return NotYet("memory_has_all")
    if not seam.has_history:
        return NotYet("no_history")
    length_ms = RANGE_TICKS * layout.period_ms
    end_ms = seam.first_ms - SEAM_TICKS * layout.period_ms - (piece % max(depth_ms // length_ms, 1)) * length_ms
    return Range(end_ms - length_ms, end_ms)

"""Heads of the chunk stage: they drop slices only when the stage has emitted them, never by age or size."""

from __future__ import annotations

from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.time_set import SliceLengths, TimeSet

OUT_OF_REACH_MS = 1 << 60  # Hold of a head that drops no slice by age.
_UNBOUNDED = HeadLimits(memory_soft_bytes=1 << 62, memory_hard_bytes=1 << 62, ring_samples_max=1, exemplars_bytes_max=0)


def stretch_head(partition: int, start_ms: int, slices: SliceLengths, times: TimeSet) -> Head:
    """An empty head for one stretch of the log. The stretch bounds its memory, so it has no limits."""
    return Head(
        partition,
        slices=slices,
        time_set=times,
        hold_ms=OUT_OF_REACH_MS,
        coverage_start_ms=start_ms,
        since_offset=0,
        from_start=False,
        limits=_UNBOUNDED,
    )

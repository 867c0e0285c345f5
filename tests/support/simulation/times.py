"""Times of a simulation: in proportion as those of production, and small, so that many windows pass."""

from __future__ import annotations

from tsdb.model.time_set import SliceLengths, TimeSet

DAY_MS = 24 * 3600 * 1000
BEGIN_MS = 1_700_000_000_000
# Samples older than the newest one of an import are accepted, so late samples meet imported ones.
TIMES = TimeSet("simulation", 20_000, 250, 750, 400, 500, 1_000, 50_000, 3 * DAY_MS)
SLICES = SliceLengths(500, 2_000)
SMALL_RESOLUTIONS_MS = {"5m": 1_000, "1h": 10_000}  # These times replace the times of the names.

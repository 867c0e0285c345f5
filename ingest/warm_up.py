"""Warm-up: compile the kernels of the write path, or load them from the cache, before the first request."""

from __future__ import annotations

import numpy as np

from ingest.batch import make_batch
from ingest.grouping import group
from ingest.limits import IngestLimits
from ingest.records import encode_ranges, ranges_by_partition
from ingest.series.announcements import find_due
from ingest.series.resolved_rows import empty_rows
from tsdb.codec.records.log_record import encode_tick


def warm_up() -> None:
    """Run one invented row through every kernel. Writes nothing."""
    batch = make_batch([b"a"], None, np.zeros(1, np.int64), np.zeros(1, np.float64), IngestLimits())
    rows, good = empty_rows(1), np.ones(1, np.bool_)
    find_due(batch, rows, good, 0)
    grouped = group(batch, rows, good)
    encode_ranges(grouped, ranges_by_partition(grouped))
    encode_tick()

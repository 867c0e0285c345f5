"""Derive: turn the buckets of a window into a fragment of the pack of derived series. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.downsample.buckets import Buckets, runs
from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.resolution import AGGREGATES


def derived_fragment(
    buckets: Buckets, ids: Mapping[int, NDArray[np.uint64]], pack_id: int, window_start_ms: int, order: int
) -> Fragment:
    """ids: by source, uint64 (6,): ids of its derived series in the order of AGGREGATES. order: of every sample."""
    series = np.stack([ids[source] for source in buckets.series_id.tolist()], axis=1).ravel()
    by_id = np.argsort(series)
    bucket_start, each = np.tile(buckets.bucket_start[:-1], len(AGGREGATES)), len(buckets.ts_ms)
    counts = np.tile(np.diff(buckets.bucket_start), len(AGGREGATES))[by_id]
    starts = (bucket_start + np.repeat(np.arange(len(AGGREGATES)) * each, len(buckets.series_id)))[by_id]
    at = runs(starts, counts)
    values = np.concatenate([buckets.values[aggregate] for aggregate in AGGREGATES])[at]
    sample_start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Fragment(
        pack_id,
        window_start_ms,
        series[by_id],
        sample_start,
        buckets.ts_ms[at % each],
        values,
        np.full(len(at), order, np.int64),
    )

"""Deriving: turn the samples of one (pack, window) into the fragment of the pack of their derived series. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.downsample.buckets import Buckets, LastValues, buckets_of, last_values
from spark_backfill.jobs.downsample.histograms import (
    HistogramSteps,
    LastHistograms,
    floats_of,
    histogram_steps,
    last_histograms,
    split,
)
from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.merge import merge
from tsdb.model.arrays import joined_ranges
from tsdb.model.resolution import AGGREGATES

DerivedIds = Mapping[int, NDArray[np.uint64]]
"""Ids of the derived series of each source: uint64 (6,), in the order of AGGREGATES."""


@dataclass(frozen=True, slots=True)
class Before:
    """The last samples of the window before, from which increases begin."""

    values: LastValues
    histograms: LastHistograms | None


NOTHING_BEFORE = Before({}, None)


def last_samples(fragment: Fragment, before: Before) -> Before:
    """The last samples after this window."""
    floats = floats_of(fragment)
    values = {} if floats is None else last_values(floats, before.values)
    return Before(values, last_histograms(fragment, before.histograms))


def derived_fragment(
    fragment: Fragment, resolution_ms: int, before: Before, ids: DerivedIds, pack_id: int, order: int
) -> Fragment:
    """The derived samples of a window at one resolution, each with this order."""
    floats, histograms = split(fragment, resolution_ms)
    parts: list[Fragment] = []
    if floats is not None:
        buckets = buckets_of(floats, resolution_ms, before.values)
        parts.append(_of_buckets(buckets, ids, pack_id, fragment.window_start_ms, order))
    if histograms is not None:
        steps = histogram_steps(histograms, resolution_ms, before.histograms)
        parts.append(_of_steps(steps, ids, pack_id, fragment.window_start_ms, order))
    return merge(parts)


def _of_steps(steps: HistogramSteps, ids: DerivedIds, pack_id: int, window_start_ms: int, order: int) -> Fragment:
    sources, source_of = np.unique(steps.series_id, return_inverse=True)
    series = np.stack([ids[source] for source in sources.tolist()])[source_of, steps.aggregate]
    rows = np.lexsort((steps.ts_ms, series))
    distinct, first = np.unique(series[rows], return_index=True)
    return Fragment(
        pack_id,
        window_start_ms,
        distinct,
        np.append(first, len(rows)).astype(np.int64),
        steps.ts_ms[rows],
        steps.value[rows],
        np.full(len(rows), order, np.int64),
        None if steps.details is None else steps.details.take(rows),
    )


def _of_buckets(
    buckets: Buckets, ids: Mapping[int, NDArray[np.uint64]], pack_id: int, window_start_ms: int, order: int
) -> Fragment:
    """ids: for each source, uint64 (6,) with the ids of its derived series in the order of AGGREGATES. order: the order
    of every sample.
    """
    series = np.stack([ids[source] for source in buckets.series_id.tolist()], axis=1).ravel()
    by_id = np.argsort(series)
    bucket_start, each = np.tile(buckets.bucket_start[:-1], len(AGGREGATES)), len(buckets.ts_ms)
    counts = np.tile(np.diff(buckets.bucket_start), len(AGGREGATES))[by_id]
    starts = (bucket_start + np.repeat(np.arange(len(AGGREGATES)) * each, len(buckets.series_id)))[by_id]
    at = joined_ranges(starts, counts)
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

"""Buckets: derive the samples of one resolution from the samples of one (pack, window). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.downsample.buckets_kernels import increases_kernel
from tsdb.codec.chunk.chunk import Fragment
from tsdb.head.read import step_kernels as steps
from tsdb.model.arrays import joined_ranges
from tsdb.model.resolution import AGGREGATES, COUNT, INCREASE, LAST, MAX, MIN, SUM

_STEPS = {COUNT: steps.COUNT, SUM: steps.SUM, MIN: steps.MIN, MAX: steps.MAX, LAST: steps.LAST}

LastValues = dict[int, float]
"""Last value by series id, never NaN."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Derived samples of k series, m in all. bucket_start: (k + 1,), as Fragment.sample_start. ts_ms: start of each
    bucket, ms since the epoch, a multiple of the resolution. values: float64 (m,) for each aggregate.
    """

    series_id: NDArray[np.uint64]
    bucket_start: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]


def buckets_of(fragment: Fragment, resolution_ms: int, last: LastValues) -> Buckets:
    """Buckets [k * resolution, (k + 1) * resolution) that have a sample; empty buckets are left out.

    last: last values of the window before, from which increases begin. It is not changed; `last_values` makes the next.
    """
    sample_start = np.ascontiguousarray(fragment.sample_start)
    ends, ts_ms = sample_start[1:].copy(), np.ascontiguousarray(fragment.ts_ms)
    values = {}
    for aggregate, number in _STEPS.items():
        ends, stamps, values[aggregate] = _stepped(fragment, resolution_ms, number)
    counts = ends - sample_start[:-1]
    kept = joined_ranges(sample_start[:-1], counts)
    grown = np.empty(len(kept), np.float64)
    before = np.array([last.get(one, np.nan) for one in fragment.series_id.tolist()], np.float64)
    found = increases_kernel(sample_start, ts_ms, np.ascontiguousarray(fragment.value), before, resolution_ms, grown)
    assert found == len(kept), f"{found} increases of {len(kept)} buckets"
    values = {aggregate: column[kept] for aggregate, column in values.items()} | {INCREASE: grown}
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return Buckets(fragment.series_id, starts, stamps[kept], {one: values[one] for one in AGGREGATES})


def last_values(fragment: Fragment, last: LastValues) -> LastValues:
    """The last values after this window. A series with only NaN in the window keeps its value of `last`."""
    known: LastValues = {}
    bounds = zip(fragment.sample_start[:-1].tolist(), fragment.sample_start[1:].tolist(), strict=True)
    for series, (start, end) in zip(fragment.series_id.tolist(), bounds, strict=True):
        numbers = fragment.value[start:end]
        numbers = numbers[~np.isnan(numbers)]
        if len(numbers):
            known[series] = float(numbers[-1])
        elif series in last:
            known[series] = last[series]
    return known


def _stepped(
    fragment: Fragment, resolution_ms: int, aggregation: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(end of the steps of each series, stamps, values). Steps of a series begin at the index of its first sample."""
    starts, ends = fragment.sample_start[:-1].copy(), fragment.sample_start[1:].copy()
    stamps, values = fragment.ts_ms.copy(), fragment.value.copy()
    steps.aggregate_kernel(starts, ends, stamps, values, 0, resolution_ms, aggregation)
    return ends, stamps, values

"""Returns the samples of a range selector as the result of an instant query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.selection.select import Ranges
from tsdb.promql.evaluate.vectors.block import Samples
from tsdb.promql.syntax.tree import Extension


def range_vector(ranges: Ranges) -> Samples:
    """The samples of ranges with one step, without series that have none there."""
    if ranges.extension is not Extension.NONE:
        return _extended(ranges)
    samples, end_ms = ranges.samples, ranges.at_ms[0]
    inside = (samples.ts_ms > end_ms - ranges.range_ms) & (samples.ts_ms <= end_ms)
    ends = np.concatenate(([0], np.cumsum(inside)))[samples.starts]
    rows = np.flatnonzero(np.diff(ends))
    starts = np.concatenate(([0], ends[rows + 1])).astype(np.int64)
    native = samples.native and replace(samples.native, of=samples.native.of[inside])
    return Samples(
        samples.labels.subset(rows),
        starts,
        samples.ts_ms[inside],
        samples.values[inside],
        samples.loses_name[rows],
        native,
    )


def _extended(ranges: Ranges) -> Samples:
    """Samples with one at each end of the range: the nearest before it, or between neighbours where it is smoothed."""
    samples, end_ms = ranges.samples, int(ranges.at_ms[0])
    start_ms = end_ms - ranges.range_ms
    rows: list[int] = []
    times: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for row in range(len(samples.labels)):
        of_row = slice(samples.starts[row], samples.starts[row + 1])
        ts_ms, held = samples.ts_ms[of_row], samples.values[of_row]
        inside = (ts_ms > end_ms - ranges.before_ms) & (ts_ms <= end_ms + ranges.after_ms)
        ts_ms, held = ts_ms[inside], held[inside]
        if not len(ts_ms):
            continue
        low = max(0, int(np.searchsorted(ts_ms[:-1], start_ms, side="right")) - 1)
        high = len(ts_ms) - 1
        is_smoothed = ranges.extension is Extension.SMOOTHED
        if is_smoothed:
            high = int(np.searchsorted(ts_ms[:-1], end_ms, side="left"))
        if ts_ms[high] <= start_ms:
            continue
        left, right = held[low], held[high]
        if is_smoothed and ts_ms[low] < start_ms:
            left = _between(start_ms, ts_ms[low : low + 2], held[low : low + 2])
        if is_smoothed and high > 0 and ts_ms[high] > end_ms:
            right = _between(end_ms, ts_ms[high - 1 : high + 1], held[high - 1 : high + 1])
        low += bool(ts_ms[low] <= start_ms)
        high -= bool(ts_ms[high] >= end_ms)
        rows.append(row)
        times.append(np.concatenate(([start_ms], ts_ms[low : high + 1], [end_ms])))
        values.append(np.concatenate(([left], held[low : high + 1], [right])))
    kept = np.array(rows, np.int64)
    starts = np.concatenate(([0], np.cumsum([len(part) for part in times]))).astype(np.int64)
    ts_ms = np.concatenate([np.zeros(0, np.int64), *times]).astype(np.int64)
    return Samples(
        samples.labels.subset(kept), starts, ts_ms, np.concatenate([np.zeros(0), *values]), samples.loses_name[kept]
    )


def _between(at_ms: int, ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """The value at a time between two samples. As in Prometheus, a rise beyond the largest double is infinite
    (promql/functions.go, `interpolate`)."""
    before, after = values.tolist()
    return float(before + (after - before) * (at_ms - int(ts_ms[0])) / int(ts_ms[1] - ts_ms[0]))

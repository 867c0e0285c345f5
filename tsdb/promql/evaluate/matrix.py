"""A range as the result of an instant query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.block import Samples
from tsdb.promql.evaluate.select import Windows
from tsdb.promql.syntax.tree import Extension


def range_vector(windows: Windows) -> Samples:
    """The samples of windows with one step, without series that have none there."""
    first, last = windows.first[:, 0], windows.last[:, 0]
    if windows.extension is not Extension.NONE:
        return _extended(windows)
    rows = np.flatnonzero(last > first)
    counts = (last - first)[rows]
    starts = np.concatenate(([0], np.cumsum(counts)))
    index = np.arange(starts[-1]) + np.repeat(first[rows] - starts[:-1], counts)
    samples = windows.samples
    return Samples(
        samples.labels.take(rows), starts, samples.ts_ms[index], samples.values[index], samples.loses_name[rows]
    )


def _extended(windows: Windows) -> Samples:
    """Samples with one at each end of the range: the nearest before it, or between neighbours where it is smoothed."""
    samples, end_ms = windows.samples, int(windows.at_ms[0])
    start_ms = end_ms - windows.range_ms
    rows: list[int] = []
    times: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for row in range(len(samples.labels)):
        window = slice(windows.first[row, 0], windows.last[row, 0])
        ts_ms, held = samples.ts_ms[window], samples.values[window]
        if not len(ts_ms):
            continue
        low = max(0, int(np.searchsorted(ts_ms[:-1], start_ms, side="right")) - 1)
        high = len(ts_ms) - 1
        is_smoothed = windows.extension is Extension.SMOOTHED
        if is_smoothed:
            high = int(np.searchsorted(ts_ms[:-1], end_ms, side="left"))
        if ts_ms[high] <= start_ms:
            continue
        left, right = held[low], held[high]
        if is_smoothed and ts_ms[low] < start_ms:
            left = np.interp(start_ms, ts_ms[low : low + 2], held[low : low + 2])
        if is_smoothed and high > 0 and ts_ms[high] > end_ms:
            right = np.interp(end_ms, ts_ms[high - 1 : high + 1], held[high - 1 : high + 1])
        low += bool(ts_ms[low] <= start_ms)
        high -= bool(ts_ms[high] >= end_ms)
        rows.append(row)
        times.append(np.concatenate(([start_ms], ts_ms[low : high + 1], [end_ms])))
        values.append(np.concatenate(([left], held[low : high + 1], [right])))
    kept = np.array(rows, np.int64)
    starts = np.concatenate(([0], np.cumsum([len(part) for part in times]))).astype(np.int64)
    ts_ms = np.concatenate([np.zeros(0, np.int64), *times]).astype(np.int64)
    return Samples(
        samples.labels.take(kept), starts, ts_ms, np.concatenate([np.zeros(0), *values]), samples.loses_name[kept]
    )

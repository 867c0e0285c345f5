"""Kernels of reading the past: what of a fragment a query wants."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel


@kernel
def wanted_runs_kernel(
    series_id: NDArray[np.uint64],
    sample_start: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    wanted: NDArray[np.uint64],
    start_ms: int,
    end_ms: int,
    which: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> int:
    """Series of a fragment that are wanted and have samples in [start_ms, end_ms): their index and samples [low, high).

    Both lists of ids ascend. Returns how many.
    """
    found, at = 0, 0
    for series in range(series_id.size):
        at = _search_ids(wanted, at, series_id[series])
        if at == wanted.size:
            break
        if wanted[at] != series_id[series]:
            continue
        begin, end = sample_start[series], sample_start[series + 1]
        first = _search_times(ts_ms, begin, end, start_ms)
        last = _search_times(ts_ms, first, end, end_ms)
        if first < last:
            which[found], low[found], high[found] = series, first, last
            found += 1
    return found


@kernel
def _search_ids(ids: NDArray[np.uint64], low: int, wanted: int) -> int:
    high = ids.size
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _search_times(ts_ms: NDArray[np.int64], low: int, high: int, wanted_ms: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if ts_ms[middle] < wanted_ms:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def copy_runs_kernel(
    ts_ms: NDArray[np.int64],
    value: NDArray[np.float64],
    order: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    to_start: NDArray[np.int64],
    to_ts_ms: NDArray[np.int64],
    to_value: NDArray[np.float64],
    to_order: NDArray[np.int64],
) -> None:
    """Runs [low, high) of one set of arrays, to where each begins in another."""
    for run in range(low.size):
        shift = to_start[run] - low[run]
        for at in range(low[run], high[run]):
            to_ts_ms[at + shift] = ts_ms[at]
            to_value[at + shift] = value[at]
            to_order[at + shift] = order[at]

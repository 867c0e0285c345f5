"""Kernels of reading history: the runs of a fragment that a query needs, and runs joined one behind another.

The arrays of fragments and those given here are contiguous and writeable, so that one variant is compiled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.codec.overlay_kernels import copy_run_kernel

BROKEN = -1  # Times of a series do not ascend from one run to the next.


@kernel
def wanted_runs_kernel(
    series_id: NDArray[np.uint64],
    sample_start: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    wanted: NDArray[np.uint64],
    start_ms: int,
    end_ms: int,
    slot: NDArray[np.int64],
    which: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> int:
    """Find the requested series of a fragment that have samples in [start_ms, end_ms).

    slot: index in `wanted`; which: index in the fragment; low, high: its samples [low, high). Both lists of ids ascend.
    Returns the number of series.

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
            slot[found], which[found], low[found], high[found] = at, series, first, last
            found += 1
    return found


@helper
def _search_ids(ids: NDArray[np.uint64], low: int, wanted: np.uint64) -> int:
    high = ids.size
    while low < high:
        middle = (low + high) // 2
        if ids[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _search_times(ts_ms: NDArray[np.int64], low: int, high: int, wanted_ms: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if ts_ms[middle] < wanted_ms:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def append_runs_kernel(
    ts_ms: NDArray[np.int64],
    value: NDArray[np.float64],
    order: NDArray[np.int64],
    slot: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    to_ts_ms: NDArray[np.int64],
    to_value: NDArray[np.float64],
    to_order: NDArray[np.int64],
) -> int:
    """Copy runs [low, high) behind what their slots [begins, ends) have already; ends move. 0, or BROKEN."""
    for run in range(low.size):
        to, count = ends[slot[run]], high[run] - low[run]
        if to > begins[slot[run]] and to_ts_ms[to - 1] >= ts_ms[low[run]]:
            return BROKEN
        copy_run_kernel(to_ts_ms, to, ts_ms, low[run], count)
        copy_run_kernel(to_value, to, value, low[run], count)
        copy_run_kernel(to_order, to, order, low[run], count)
        ends[slot[run]] = to + count
    return 0

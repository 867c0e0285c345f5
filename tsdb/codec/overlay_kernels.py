"""Runs of one series' samples in shared arrays: sorting, and merging a second run that wins at equal timestamps.

Used where sealed columns and samples that came later meet: in the head, and in the client that decodes COLUMNS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper
from tsdb.codec.sort_kernels import argsort_kernel

INSERTION_MAX = 32  # Longest run that is sorted by insertion; longer ones are sorted by merging.


@helper
def copy_run_kernel(to: NDArray[Any], to_at: int, source: NDArray[Any], source_at: int, count: int) -> None:
    """Copies source[source_at:][:count] to to[to_at:][:count]. The two may overlap when the run moves down.

    It is a loop: an assignment of array slices takes half a second longer to compile, and may raise.
    """
    for index in range(count):
        to[to_at + index] = source[source_at + index]


@helper
def first_not_below(ts: NDArray[np.int64], start: int, end: int, time: int) -> int:
    """First index of ascending ts[start:end] whose time is not below `time`, or end."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if ts[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def sort_run_kernel(
    ts: NDArray[np.int64], values: NDArray[np.float64], orders: NDArray[np.int64], start: int, end: int
) -> int:
    """Sort run [start, end) by time; of equal timestamps the last stays. Returns the new end.

    orders is carried along, or empty.
    """
    with_orders = orders.size > 0
    ordered = start + 1
    while ordered < end and ts[ordered - 1] < ts[ordered]:
        ordered += 1
    if ordered >= end:
        return end
    if end - start <= INSERTION_MAX:
        _insert(ts, values, orders, start, ordered, end)
    else:
        places = np.empty(end - start, np.int64)
        argsort_kernel(ts, start, places, np.empty(end - start, np.int64))
        _permute(ts, start, places)
        _permute(values, start, places)
        if with_orders:
            _permute(orders, start, places)
    to = start
    for at in range(start, end):
        if at + 1 < end and ts[at + 1] == ts[at]:
            continue
        ts[to], values[to] = ts[at], values[at]
        if with_orders:
            orders[to] = orders[at]
        to += 1
    return to


@helper
def _permute(run: NDArray[Any], start: int, places: NDArray[np.int64]) -> None:
    """Set run[start + i] to the element that was at start + places[i]."""
    before = np.empty(places.size, run.dtype)
    copy_run_kernel(before, 0, run, start, places.size)
    for index in range(places.size):
        run[start + index] = before[places[index]]


@helper
def _insert(
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    start: int,
    ordered: int,
    end: int,
) -> None:
    with_orders = orders.size > 0
    order = np.int64(0)
    for at in range(ordered, end):
        time, value = ts[at], values[at]
        if with_orders:
            order = orders[at]
        to = at
        while to > start and ts[to - 1] > time:
            ts[to], values[to] = ts[to - 1], values[to - 1]
            if with_orders:
                orders[to] = orders[to - 1]
            to -= 1
        ts[to], values[to] = time, value
        if with_orders:
            orders[to] = order


@helper
def merge_run_kernel(
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    start: int,
    end: int,
    over_ts: NDArray[np.int64],
    over_values: NDArray[np.float64],
    over_orders: NDArray[np.int64],
    over_start: int,
    over_end: int,
) -> int:
    """Merge run [over_start, over_end) into run [start, end); the overlay wins at equal timestamps. Returns the new
    end.

    Both ascend strictly. The arrays have capacity for both runs behind `end`. orders are carried along where both are
    given.

    """
    added = over_end - over_start
    if added == 0:
        return end
    with_orders = orders.size > 0
    if end == start or ts[end - 1] < over_ts[over_start]:
        copy_run_kernel(ts, end, over_ts, over_start, added)
        copy_run_kernel(values, end, over_values, over_start, added)
        if with_orders:
            copy_run_kernel(orders, end, over_orders, over_start, added)
        return end + added
    low, over, to = end - 1, over_end - 1, end + added - 1
    while over >= over_start:
        time = over_ts[over]
        while low >= start and ts[low] > time:
            ts[to], values[to] = ts[low], values[low]
            if with_orders:
                orders[to] = orders[low]
            low -= 1
            to -= 1
        if low >= start and ts[low] == time:
            low -= 1
        ts[to], values[to] = time, over_values[over]
        if with_orders:
            orders[to] = over_orders[over]
        over -= 1
        to -= 1
    # Replaced samples leave a gap between the untouched front and the samples that moved.
    gap = to - low
    if gap:
        new_end = end + added - gap
        moved = new_end - low - 1
        copy_run_kernel(ts, low + 1, ts, to + 1, moved)
        copy_run_kernel(values, low + 1, values, to + 1, moved)
        if with_orders:
            copy_run_kernel(orders, low + 1, orders, to + 1, moved)
        return new_end
    return end + added

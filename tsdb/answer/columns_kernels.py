"""COLUMNS: decodes the columns of sealed slices, trims them to a range and appends them to the runs of their series.

The bytes come over a network: every count, length and index is checked before it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.columns_kernels import decode_times_kernel, decode_values_kernel
from tsdb.codec.jit import helper, kernel, request_kernel
from tsdb.codec.overlay_kernels import copy_run_kernel, first_not_below, merge_run_kernel

OK = 0
BAD_LENGTHS = -1  # The lengths do not add up to the number of bytes.
BAD_INDEX = -2  # An index beyond the series or the axes.
BAD_AXIS = -3  # A time axis does not decode, or does not ascend.
BAD_COLUMN = -4  # A column does not decode.
BAD_ORDER = -5  # Samples of a series do not ascend from one piece to the next, or within the overlay.
BAD_RANGE = -6  # An overlay sample outside the range.


@helper
def signed(value: Any) -> int:
    """Convert any integer to int64."""
    return np.int64(value)  # type: ignore[return-value]  # numba's integers are all of numpy's


@kernel
def check_piece_kernel(
    series: int,
    series_index: NDArray[np.uint32],
    column_lengths: NDArray[np.uint32],
    axis_index: NDArray[np.uint32],
    axis_lengths: NDArray[np.uint32],
    data_size: int,
    axes_size: int,
) -> int:
    """OK, or what is wrong with the directory of a piece."""
    if series_index.size != column_lengths.size or series_index.size != axis_index.size:
        return BAD_LENGTHS
    total = 0
    for column in range(series_index.size):
        total += signed(column_lengths[column])
        if signed(series_index[column]) >= series or signed(axis_index[column]) >= axis_lengths.size:
            return BAD_INDEX
    axes_total = 0
    for axis in range(axis_lengths.size):
        axes_total += signed(axis_lengths[axis])
    return OK if total == data_size and axes_total == axes_size else BAD_LENGTHS


@kernel
def decode_axes_kernel(
    axis_base_ms: NDArray[np.int64],
    start_ms: int,
    end_ms: int,
    axis_lengths: NDArray[np.uint32],
    axis_counts: NDArray[np.uint32],
    axes: NDArray[np.uint8],
    times: NDArray[np.int64],
    axis_at: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
) -> int:
    """Decode all axes into times, axis a at axis_at[a]; its samples [low[a], high[a]) lie in [start_ms, end_ms)."""
    position, at = 0, 0
    for axis in range(axis_lengths.size):
        count, end = signed(axis_counts[axis]), position + signed(axis_lengths[axis])
        if decode_times_kernel(axes, position, end, count, times, at) != end:
            return BAD_AXIS
        axis_at[axis], low[axis], high[axis] = at, 0, 0
        base_ms = axis_base_ms[axis]
        for index in range(at, at + count):
            times[index] += base_ms
            if index > at and times[index] <= times[index - 1]:
                return BAD_AXIS
            low[axis] += times[index] < start_ms
            high[axis] += times[index] < end_ms
        at += count
        position = end
    return OK


@kernel
def count_columns_kernel(
    series_index: NDArray[np.uint32],
    axis_index: NDArray[np.uint32],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Add the trimmed samples of each column to the count of its series."""
    for column in range(series_index.size):
        axis = axis_index[column]
        counts[series_index[column]] += high[axis] - low[axis]


@kernel
def decode_columns_kernel(
    first_series: int,
    end_series: int,
    series_index: NDArray[np.uint32],
    column_lengths: NDArray[np.uint32],
    axis_index: NDArray[np.uint32],
    axis_counts: NDArray[np.uint32],
    data: NDArray[np.uint8],
    times: NDArray[np.int64],
    axis_at: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    scratch: NDArray[np.float64],
) -> int:
    """Trim each column of the series [first_series, end_series) and append it to the run of its series. Updates `ends`.

    scratch: as long as the longest axis.

    """
    position = 0
    for column in range(series_index.size):
        which, axis = signed(series_index[column]), axis_index[column]
        end = position + signed(column_lengths[column])
        count, kept = signed(axis_counts[axis]), high[axis] - low[axis]
        if kept and first_series <= which < end_series:
            to, first = ends[which], axis_at[axis] + low[axis]
            if to > starts[which] and ts[to - 1] >= times[first]:
                return BAD_ORDER
            if kept == count:
                if decode_values_kernel(data, position, end, count, values, to) != end:
                    return BAD_COLUMN
            else:
                if decode_values_kernel(data, position, end, count, scratch, 0) != end:
                    return BAD_COLUMN
                copy_run_kernel(values, to, scratch, low[axis], kept)
            copy_run_kernel(ts, to, times, first, kept)
            ends[which] = to + kept
        position = end
    return OK


@kernel
def check_overlay_kernel(counts: NDArray[np.int64], ts: NDArray[np.int64], start_ms: int, end_ms: int) -> int:
    """OK when each series' run ascends strictly and lies in [start_ms, end_ms)."""
    at = 0
    for which in range(counts.size):
        for index in range(at, at + counts[which]):
            if not start_ms <= ts[index] < end_ms:
                return BAD_RANGE
            if index > at and ts[index] <= ts[index - 1]:
                return BAD_ORDER
        at += counts[which]
    return OK


@kernel
def merge_overlay_kernel(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    over_counts: NDArray[np.int64],
    over_ts: NDArray[np.int64],
    over_values: NDArray[np.float64],
    counts: NDArray[np.uint32],
) -> int:
    """Merge the overlay, whose samples win, and move the runs together. counts: samples of each series. Returns the
    number of samples."""
    none = np.empty(0, np.int64)
    total, over = 0, 0
    for which in range(ends.size):
        start = starts[which]
        end = merge_run_kernel(
            ts, values, none, start, ends[which], over_ts, over_values, none, over, over + over_counts[which]
        )
        over += over_counts[which]
        counts[which] = end - start
        if start != total:
            copy_run_kernel(ts, total, ts, start, end - start)
            copy_run_kernel(values, total, values, start, end - start)
        total += end - start
    return total


@request_kernel
def trim_joined_kernel(
    starts: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    over_counts: NDArray[np.uint32],
    over_ts: NDArray[np.int64],
    over_values: NDArray[np.float64],
    start_ms: int,
    end_ms: int,
    counts: NDArray[np.uint32],
    out_ts: NDArray[np.int64],
    out_values: NDArray[np.float64],
) -> int:
    """Write the samples of [start_ms, end_ms) of each series, with the overlay merged in. Both ascend in each series.

    counts (series,): filled. out_ts, out_values: have the capacity for all samples. Returns the number of samples.
    """
    none = np.empty(0, np.int64)
    total, over_end = 0, 0
    for which in range(counts.size):
        over, over_end = over_end, over_end + signed(over_counts[which])
        over_first = first_not_below(over_ts, over, over_end, start_ms)
        over_last = first_not_below(over_ts, over_first, over_end, end_ms)
        first = first_not_below(ts, starts[which], starts[which + 1], start_ms)
        size = first_not_below(ts, first, starts[which + 1], end_ms) - first
        copy_run_kernel(out_ts, total, ts, first, size)
        copy_run_kernel(out_values, total, values, first, size)
        end = merge_run_kernel(
            out_ts, out_values, none, total, total + size, over_ts, over_values, none, over_first, over_last
        )
        counts[which] = end - total
        total = end
    return total

"""Gather from several heads at once: the kernels of one head, run for each without coming back to Python in between."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel
from tsdb.head.gather_columns_kernels import (
    NEED_AXES,
    NEED_AXIS_DATA,
    NEED_COLUMNS,
    NEED_DATA,
    NEED_SIZE,
    copy_kernel,
    plan_kernel,
)
from tsdb.head.gather_kernels import collect_kernel
from tsdb.head.rows import Rows


@kernel
def collect_many_kernel(
    refs: NDArray[np.uint32],
    ref_ends: NDArray[np.int64],
    start_ms: int,
    end_ms: int,
    open_rows: Rows,
    open_ends: NDArray[np.int64],
    late_rows: Rows,
    starts: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> int:
    """As collect_kernel, over heads: head i has refs[ref_ends[i]:ref_ends[i + 1]], rows likewise, and late_rows[i]."""
    total = 0
    for head in range(ref_ends.size - 1):
        first, last, row, row_end = ref_ends[head], ref_ends[head + 1], open_ends[head], open_ends[head + 1]
        begin = min(total, ts.size)
        got = collect_kernel(
            refs[first:last],
            start_ms,
            end_ms,
            open_rows[row:row_end],
            row_end - row,
            late_rows[head],
            starts[first : last + 1],
            ts[begin:],
            values[begin:],
            orders,
        )
        for which in range(first, last + 1):
            starts[which] += total
        total += got
    return total


@kernel
def plan_many_kernel(
    rows: Rows,
    row_ends: NDArray[np.int64],
    refs: NDArray[np.uint32],
    ref_ends: NDArray[np.int64],
    keys: NDArray[np.uint64],
    needs: NDArray[np.int64],
    need_ends: NDArray[np.int64],
) -> None:
    """As plan_kernel, over heads. keys: flat, rows x refs of each. need_ends (heads + 1, NEED_SIZE): running sums."""
    at = 0
    for head in range(ref_ends.size - 1):
        row, row_end = row_ends[head], row_ends[head + 1]
        refs_here = refs[ref_ends[head] : ref_ends[head + 1]]
        size = (row_end - row) * refs_here.size
        plan_kernel(
            rows[row:row_end],
            refs_here,
            keys[at : at + size].reshape(row_end - row, refs_here.size),
            needs[row:row_end],
        )
        at += size
        for need in range(NEED_SIZE):
            need_ends[head + 1, need] = need_ends[head, need] + needs[row:row_end, need].sum()


@kernel
def copy_many_kernel(
    rows: Rows,
    row_ends: NDArray[np.int64],
    ref_ends: NDArray[np.int64],
    keys: NDArray[np.uint64],
    needs: NDArray[np.int64],
    need_ends: NDArray[np.int64],
    series_index: NDArray[np.uint32],
    column_lengths: NDArray[np.uint32],
    axis_index: NDArray[np.uint32],
    axis_base_ms: NDArray[np.int64],
    axis_lengths: NDArray[np.uint32],
    axis_counts: NDArray[np.uint32],
    axis_data: NDArray[np.uint8],
    data: NDArray[np.uint8],
) -> None:
    """As copy_kernel, over heads; what a head gave lies between its need_ends. Indices count from its own first."""
    at = 0
    for head in range(ref_ends.size - 1):
        row, row_end = row_ends[head], row_ends[head + 1]
        count = ref_ends[head + 1] - ref_ends[head]
        size = (row_end - row) * count
        column, column_end = need_ends[head, NEED_COLUMNS], need_ends[head + 1, NEED_COLUMNS]
        axis, axis_end = need_ends[head, NEED_AXES], need_ends[head + 1, NEED_AXES]
        copy_kernel(
            rows[row:row_end],
            keys[at : at + size].reshape(row_end - row, count),
            needs[row:row_end],
            series_index[column:column_end],
            column_lengths[column:column_end],
            axis_index[column:column_end],
            axis_base_ms[axis:axis_end],
            axis_lengths[axis:axis_end],
            axis_counts[axis:axis_end],
            axis_data[need_ends[head, NEED_AXIS_DATA] : need_ends[head + 1, NEED_AXIS_DATA]],
            data[need_ends[head, NEED_DATA] : need_ends[head + 1, NEED_DATA]],
        )
        at += size

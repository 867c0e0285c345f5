"""Gather from several heads at once: the kernels of one head, run for each without coming back to Python in between."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.codec.memory_kernels import as_rows, copy_bytes
from tsdb.codec.overlay_kernels import first_not_below
from tsdb.head.read.gather_columns_kernels import (
    NEED_AXES,
    NEED_AXIS_DATA,
    NEED_COLUMNS,
    NEED_DATA,
    NEED_SIZE,
    copy_kernel,
    plan_kernel,
)
from tsdb.head.read.gather_kernels import late_chain_kernel, open_chain_kernel
from tsdb.head.slices.address_kernels import signed, u32_at
from tsdb.head.slices.rows import (
    LATE_COUNT,
    LATE_LAST,
    LATE_LAST_SIZE,
    OPEN_COUNT,
    OPEN_LAST,
    OPEN_LAST_SIZE,
    OPEN_START,
    Rows,
)


@kernel
def collect_since_kernel(
    refs: NDArray[np.uint32],
    ref_ends: NDArray[np.int64],
    start_ms: int,
    end_ms: int,
    open_rows: Rows,
    open_ends: NDArray[np.int64],
    late_rows: Rows,
    goes_on: NDArray[np.bool_],
    old_open_rows: Rows,
    old_open_ends: NDArray[np.int64],
    old_late_rows: Rows,
    old_starts: NDArray[np.int64],
    old_ts: NDArray[np.int64],
    old_values: NDArray[np.float64],
    starts: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
) -> int:
    """Open and late samples of series of several heads: the earlier runs, each followed by its newer samples in
    [start_ms, end_ms).

    Head i has refs[ref_ends[i]:ref_ends[i + 1]], open rows likewise, and late_rows[i]. goes_on (heads,): whether a head
    was only appended to since the old rows; for any other head the old runs are left out and all samples are copied.
    starts (n + 1,): where the run of each ref begins. Returns the number of all samples. When it is above the capacity,
    the arrays are unusable: call again with larger ones. Without a new sample in any head nothing is copied, and the
    old runs are the answer.
    """
    no_orders = np.empty(0, np.int64)
    after, newer = np.zeros(open_rows.shape[0], np.int64), np.zeros(refs.size, np.bool_)
    changed = False
    for head in range(ref_ends.size - 1):
        if goes_on[head]:
            _entries_before(open_rows, open_ends, old_open_rows, old_open_ends, head, after)
        # These lookups come first and without other work, because a processor waits for many such lookups at once.
        here, newer_here = refs[ref_ends[head] : ref_ends[head + 1]], newer[ref_ends[head] : ref_ends[head + 1]]
        for row in range(open_ends[head], open_ends[head + 1]):
            last = u32_at(open_rows[row, OPEN_LAST], open_rows[row, OPEN_LAST_SIZE])
            changed |= _mark_newer(here, last, after[row], newer_here)
        last = u32_at(late_rows[head, LATE_LAST], late_rows[head, LATE_LAST_SIZE])
        changed |= _mark_newer(here, last, old_late_rows[head, LATE_COUNT] if goes_on[head] else 0, newer_here)
    if not changed and _all_true(goes_on):
        return old_ts.size
    total = 0
    for head in range(ref_ends.size - 1):
        after_late = old_late_rows[head, LATE_COUNT] if goes_on[head] else 0
        for which in range(ref_ends[head], ref_ends[head + 1]):
            starts[which] = total
            if goes_on[head]:
                first, count = old_starts[which], old_starts[which + 1] - old_starts[which]
                if total + count <= ts.size:
                    copy_bytes(ts, total * 8, old_ts, first * 8, count * 8)
                    copy_bytes(values, total * 8, old_values, first * 8, count * 8)
                total += count
            if not newer[which]:
                continue
            for row in range(open_ends[head], open_ends[head + 1]):
                total = open_chain_kernel(
                    open_rows[row], refs[which], after[row], start_ms, end_ms, ts, values, no_orders, total
                )
            total = late_chain_kernel(
                late_rows[head], refs[which], after_late, start_ms, end_ms, ts, values, no_orders, total
            )
    starts[refs.size] = total
    return total


@helper
def _all_true(flags: NDArray[np.bool_]) -> bool:
    for flag in flags:  # noqa: SIM110  # numba compiles no generator
        if not flag:
            return False
    return True


@helper
def _mark_newer(refs: NDArray[np.uint32], last: NDArray[np.uint32], after: int, newer: NDArray[np.bool_]) -> bool:
    """newer (n,): set where a ref's newest entry has a number above `after`. Returns whether any is set."""
    found = False
    for which in range(refs.size):
        if refs[which] < last.size and signed(last[refs[which]]) > after:
            newer[which] = found = True
    return found


@helper
def _entries_before(
    open_rows: Rows,
    open_ends: NDArray[np.int64],
    old_open_rows: Rows,
    old_open_ends: NDArray[np.int64],
    head: int,
    after: NDArray[np.int64],
) -> None:
    """after: the number of entries that each open slice of a head had before. A new slice may stand anywhere among the
    old ones."""
    old = old_open_ends[head]
    for row in range(open_ends[head], open_ends[head + 1]):
        while old < old_open_ends[head + 1] and old_open_rows[old, OPEN_START] < open_rows[row, OPEN_START]:
            old += 1
        if old < old_open_ends[head + 1] and old_open_rows[old, OPEN_START] == open_rows[row, OPEN_START]:
            after[row] = old_open_rows[old, OPEN_COUNT]


@kernel
def clip_kernel(
    starts: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    start_ms: int,
    end_ms: int,
    counts: NDArray[np.uint32],
    clipped_ts: NDArray[np.int64],
    clipped_values: NDArray[np.float64],
) -> int:
    """The samples of [start_ms, end_ms) in runs that ascend by time. counts (n,): samples of each run. Returns the
    number of samples."""
    total = 0
    for which in range(counts.size):
        first = first_not_below(ts, starts[which], starts[which + 1], start_ms)
        end = first_not_below(ts, first, starts[which + 1], end_ms)
        copy_bytes(clipped_ts, total * 8, ts, first * 8, (end - first) * 8)
        copy_bytes(clipped_values, total * 8, values, first * 8, (end - first) * 8)
        counts[which] = end - first
        total += end - first
    return total


@kernel
def plan_many_kernel(
    rows: Rows,
    row_ends: NDArray[np.int64],
    refs: NDArray[np.uint32],
    ref_ends: NDArray[np.int64],
    keys: NDArray[np.uint64],
    needs: Array2[np.int64],
    need_ends: Array2[np.int64],
) -> None:
    """Does what plan_kernel does, over heads. keys: flat, rows x refs of each head. need_ends (heads + 1, NEED_SIZE):
    running sums."""
    at = 0
    for head in range(ref_ends.size - 1):
        row, row_end = row_ends[head], row_ends[head + 1]
        refs_here = refs[ref_ends[head] : ref_ends[head + 1]]
        plan_kernel(
            rows[row:row_end],
            refs_here,
            as_rows(keys, at, row_end - row, refs_here.size),
            needs[row:row_end],
        )
        at += (row_end - row) * refs_here.size
        for need in range(NEED_SIZE):
            need_ends[head + 1, need] = need_ends[head, need]
            for needing in range(row, row_end):
                need_ends[head + 1, need] += needs[needing, need]


@kernel
def copy_many_kernel(
    rows: Rows,
    row_ends: NDArray[np.int64],
    ref_ends: NDArray[np.int64],
    keys: NDArray[np.uint64],
    needs: Array2[np.int64],
    need_ends: Array2[np.int64],
    series_index: NDArray[np.uint32],
    column_lengths: NDArray[np.uint32],
    axis_index: NDArray[np.uint32],
    axis_base_ms: NDArray[np.int64],
    axis_lengths: NDArray[np.uint32],
    axis_counts: NDArray[np.uint32],
    axis_data: NDArray[np.uint8],
    data: NDArray[np.uint8],
) -> None:
    """Does what copy_kernel does, over heads. The output of a head lies between its need_ends. Indices count from the
    head's own start."""
    at = 0
    for head in range(ref_ends.size - 1):
        row, row_end = row_ends[head], row_ends[head + 1]
        count = ref_ends[head + 1] - ref_ends[head]
        column, column_end = need_ends[head, NEED_COLUMNS], need_ends[head + 1, NEED_COLUMNS]
        axis, axis_end = need_ends[head, NEED_AXES], need_ends[head + 1, NEED_AXES]
        copy_kernel(
            rows[row:row_end],
            as_rows(keys, at, row_end - row, count),
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
        at += (row_end - row) * count

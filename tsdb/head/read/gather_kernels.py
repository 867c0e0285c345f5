"""Gather: samples of chosen series out of open slices, late list and sealed slices, without the GIL.

Samples of one series lie in one run of shared arrays. `collect` runs under the head's lock; the rest works on what it
copied and on sealed slices, which never change.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.columns_kernels import decode_times_kernel, decode_values_kernel
from tsdb.codec.jit import helper, kernel
from tsdb.codec.overlay_kernels import copy_run_kernel, first_not_below, merge_run_kernel, sort_run_kernel
from tsdb.head.slices.address_kernels import f64_at, i32_at, i64_at, signed, u8_at, u32_at
from tsdb.head.slices.rows import (
    LATE_COUNT,
    LATE_LAST,
    LATE_LAST_SIZE,
    LATE_ORDER,
    LATE_PREV,
    LATE_TS,
    LATE_VALUE,
    OPEN_COUNT,
    OPEN_END,
    OPEN_LAST,
    OPEN_LAST_SIZE,
    OPEN_PREV,
    OPEN_START,
    OPEN_TS,
    OPEN_VALUE,
    SEALED_AXES,
    SEALED_AXIS_COUNT,
    SEALED_AXIS_DATA,
    SEALED_AXIS_DATA_SIZE,
    SEALED_AXIS_END,
    SEALED_AXIS_OF,
    SEALED_COLUMN_END,
    SEALED_DATA,
    SEALED_DATA_SIZE,
    SEALED_END,
    SEALED_ORDER_DATA,
    SEALED_ORDER_DATA_SIZE,
    SEALED_ORDER_END,
    SEALED_REFS,
    SEALED_SLOT_OF,
    SEALED_SLOT_OF_SIZE,
    SEALED_SLOTS,
    SEALED_START,
    Rows,
)

NOT_LATE = -1  # Order of a sample that its slice got before it was sealed.
BROKEN = -1  # A sealed column does not decode. That is a bug, because only our encoder writes sealed columns.


@kernel
def collect_kernel(
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    open_rows: Rows,
    open_count: int,
    late: NDArray[np.int64],
    starts: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> int:
    """Collect the samples of [start_ms, end_ms): first from open slices (ascending), then from the late list, in the
    order of their application.

    starts (n + 1,): where the run of each ref begins. orders: NOT_LATE or the offset; empty when not requested. Returns
    the number of samples. When it is above the capacity, the arrays are not valid; call again with larger ones.

    """
    total = 0
    for which in range(refs.size):
        starts[which] = total
        for row in range(open_count):
            if open_rows[row, OPEN_START] < end_ms and open_rows[row, OPEN_END] > start_ms:
                total = open_chain_kernel(open_rows[row], refs[which], 0, start_ms, end_ms, ts, values, orders, total)
        total = late_chain_kernel(late, refs[which], 0, start_ms, end_ms, ts, values, orders, total)
    starts[refs.size] = total
    return total


@helper
def open_chain_kernel(
    row: NDArray[np.int64],
    ref: int,
    after: int,
    start_ms: int,
    end_ms: int,
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    total: int,
) -> int:
    """Append the samples of a ref in one open slice, without its first `after` entries, behind the first `total`
    elements of the arrays.

    Returns the new total, which may be above the capacity.

    """
    if ref >= row[OPEN_LAST_SIZE]:
        return total
    entry = signed(u32_at(row[OPEN_LAST], row[OPEN_LAST_SIZE])[ref])
    base, size, first = row[OPEN_START], row[OPEN_COUNT], total
    from_ts, from_value = i32_at(row[OPEN_TS], size), f64_at(row[OPEN_VALUE], size)
    prev = u32_at(row[OPEN_PREV], size)
    while entry > after:
        time = base + from_ts[entry - 1]
        if start_ms <= time < end_ms:
            if total < ts.size:
                ts[total], values[total] = time, from_value[entry - 1]
                if orders.size:
                    orders[total] = NOT_LATE
            total += 1
        entry = signed(prev[entry - 1])
    if total <= ts.size:
        _reverse(ts, values, orders, first, total)
    return total


@helper
def late_chain_kernel(
    late: NDArray[np.int64],
    ref: int,
    after: int,
    start_ms: int,
    end_ms: int,
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    total: int,
) -> int:
    """Does what open_chain_kernel does, for the late list."""
    if ref >= late[LATE_LAST_SIZE]:
        return total
    entry = signed(u32_at(late[LATE_LAST], late[LATE_LAST_SIZE])[ref])
    size, first = late[LATE_COUNT], total
    from_ts, from_value = i64_at(late[LATE_TS], size), f64_at(late[LATE_VALUE], size)
    from_order, prev = i64_at(late[LATE_ORDER], size), u32_at(late[LATE_PREV], size)
    while entry > after:
        time = from_ts[entry - 1]
        if start_ms <= time < end_ms:
            if total < ts.size:
                ts[total], values[total] = time, from_value[entry - 1]
                if orders.size:
                    orders[total] = from_order[entry - 1]
            total += 1
        entry = signed(prev[entry - 1])
    if total <= ts.size:
        _reverse(ts, values, orders, first, total)
    return total


@helper
def _reverse(
    ts: NDArray[np.int64], values: NDArray[np.float64], orders: NDArray[np.int64], start: int, end: int
) -> None:
    low, high = start, end - 1
    while low < high:
        ts[low], ts[high] = ts[high], ts[low]
        values[low], values[high] = values[high], values[low]
        if orders.size:
            orders[low], orders[high] = orders[high], orders[low]
        low += 1
        high -= 1


@kernel
def tidy_runs_kernel(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> None:
    """Sort each run by time; of equal timestamps the last one stays. Updates `ends`."""
    for which in range(ends.size):
        ends[which] = sort_run_kernel(ts, values, orders, starts[which], ends[which])


@helper
def slot_of(rows: Rows, row: int, ref: int) -> int:
    """Slot of a ref's column in a sealed slice, or -1."""
    size = rows[row, SEALED_SLOT_OF_SIZE]
    slots = u32_at(rows[row, SEALED_SLOT_OF], size)
    if rows[row, SEALED_REFS] == 0:
        return signed(slots[ref]) - 1 if ref < size else -1
    refs = u32_at(rows[row, SEALED_REFS], size)
    low, high = 0, size
    while low < high:
        middle = (low + high) >> 1
        if refs[middle] < ref:
            low = middle + 1
        else:
            high = middle
    return signed(slots[low]) if low < size and refs[low] == ref else -1


@kernel
def sealed_counts_kernel(
    rows: Rows, refs: NDArray[np.uint32], start_ms: int, end_ms: int, whole: bool, counts: NDArray[np.int64]
) -> None:
    """Add to counts the samples in columns of slices that touch [start_ms, end_ms). whole: count only slices that lie
    in the range."""
    for row in range(len(rows)):
        start, end = rows[row, SEALED_START], rows[row, SEALED_END]
        if start >= end_ms or end <= start_ms or (whole and (start < start_ms or end > end_ms)):
            continue
        axis_of = u32_at(rows[row, SEALED_AXIS_OF], rows[row, SEALED_SLOTS])
        axis_count = u32_at(rows[row, SEALED_AXIS_COUNT], rows[row, SEALED_AXES])
        for which in range(refs.size):
            slot = slot_of(rows, row, refs[which])
            if slot >= 0:
                counts[which] += axis_count[axis_of[slot]]


@helper
def decode_axis(rows: Rows, row: int, axis: int, out: NDArray[np.int64], at: int) -> int:
    """Write the times of an axis, ms since epoch, to out[at:]; returns how many, or BROKEN."""
    axes = rows[row, SEALED_AXES]
    axis_end = u32_at(rows[row, SEALED_AXIS_END], axes)
    count = signed(u32_at(rows[row, SEALED_AXIS_COUNT], axes)[axis])
    data = u8_at(rows[row, SEALED_AXIS_DATA], rows[row, SEALED_AXIS_DATA_SIZE])
    begin = signed(axis_end[axis - 1]) if axis else signed(0)
    if decode_times_kernel(data, begin, signed(axis_end[axis]), count, out, at) < 0:
        return BROKEN
    base = rows[row, SEALED_START]
    for index in range(at, at + count):
        out[index] += base
    return count


@kernel
def decode_slices_kernel(
    rows: Rows,
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> int:
    """Append the samples of sealed slices in [start_ms, end_ms) to the run of each ref, at ends. Updates `ends`.

    Runs have capacity for whole columns. Slices are read in the order of rows. orders: NOT_LATE or the offset; empty
    when not requested. Returns 0 or BROKEN.

    """
    for row in range(len(rows)):
        if rows[row, SEALED_START] >= end_ms or rows[row, SEALED_END] <= start_ms:
            continue
        if _decode_slice(rows, row, refs, start_ms, end_ms, ends, ts, values, orders) < 0:
            return BROKEN
    return 0


@helper
def _decode_slice(
    rows: Rows,
    row: int,
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> int:
    slots, axes = rows[row, SEALED_SLOTS], rows[row, SEALED_AXES]
    column_end, axis_of = u32_at(rows[row, SEALED_COLUMN_END], slots), u32_at(rows[row, SEALED_AXIS_OF], slots)
    axis_count = u32_at(rows[row, SEALED_AXIS_COUNT], axes)
    data = u8_at(rows[row, SEALED_DATA], rows[row, SEALED_DATA_SIZE])
    inside = rows[row, SEALED_START] >= start_ms and rows[row, SEALED_END] <= end_ms
    # Series share axes, so each axis is decoded once and kept, except when few of very many axes are needed.
    cached = axes <= 4 * refs.size + 64
    axis_at = np.full(axes if cached else 0, -1, np.int64)
    axis_times = np.empty(_total(axis_count) if cached else 0, np.int64)
    axis_used = 0
    for which in range(refs.size):
        slot = slot_of(rows, row, refs[which])
        if slot < 0:
            continue
        axis = signed(axis_of[slot])
        count, to = signed(axis_count[axis]), ends[which]
        if cached:
            if axis_at[axis] < 0:
                if decode_axis(rows, row, axis, axis_times, axis_used) < 0:
                    return BROKEN
                axis_at[axis] = axis_used
                axis_used += count
            copy_run_kernel(ts, to, axis_times, axis_at[axis], count)
        elif decode_axis(rows, row, axis, ts, to) < 0:
            return BROKEN
        begin = signed(column_end[slot - 1]) if slot else signed(0)
        if decode_values_kernel(data, begin, signed(column_end[slot]), count, values, to) < 0:
            return BROKEN
        if orders.size and _decode_orders(rows, row, slot, count, orders, to) < 0:
            return BROKEN
        if inside:
            ends[which] = to + count
        else:
            low = first_not_below(ts, to, to + count, start_ms)
            high = first_not_below(ts, low, to + count, end_ms)
            if low > to:
                copy_run_kernel(ts, to, ts, low, high - low)
                copy_run_kernel(values, to, values, low, high - low)
                if orders.size:
                    copy_run_kernel(orders, to, orders, low, high - low)
            ends[which] = to + high - low
    return 0


@helper
def _total(counts: NDArray[np.uint32]) -> int:
    total = signed(0)
    for index in range(counts.size):
        total += signed(counts[index])
    return total


@helper
def _decode_orders(rows: Rows, row: int, slot: int, count: int, orders: NDArray[np.int64], to: int) -> int:
    begin, end = signed(0), signed(0)
    if rows[row, SEALED_ORDER_END]:
        order_end = u32_at(rows[row, SEALED_ORDER_END], rows[row, SEALED_SLOTS])
        begin, end = signed(order_end[slot - 1]) if slot else signed(0), signed(order_end[slot])
    if begin == end:
        for index in range(to, to + count):
            orders[index] = NOT_LATE
        return 0
    # Offsets are far below 2^53, so the value codec keeps them exactly.
    decoded = np.empty(count, np.float64)
    data = u8_at(rows[row, SEALED_ORDER_DATA], rows[row, SEALED_ORDER_DATA_SIZE])
    if decode_values_kernel(data, begin, end, count, decoded, 0) < 0:
        return BROKEN
    for index in range(count):
        orders[to + index] = signed(decoded[index])
    return 0


@kernel
def merge_overlay_kernel(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    over_starts: NDArray[np.int64],
    over_ends: NDArray[np.int64],
    over_ts: NDArray[np.int64],
    over_values: NDArray[np.float64],
    over_orders: NDArray[np.int64],
) -> None:
    """Merge the tidy overlay run of each ref into its tidy run; the overlay wins at equal timestamps. ends move."""
    for which in range(ends.size):
        ends[which] = merge_run_kernel(
            ts,
            values,
            orders,
            starts[which],
            ends[which],
            over_ts,
            over_values,
            over_orders,
            over_starts[which],
            over_ends[which],
        )


@kernel
def compact_kernel(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    last_n: int,
    counts: NDArray[np.uint32],
) -> int:
    """Move the runs together, to the front. last_n: only the newest n samples of each run (0: all). Returns the number
    of samples."""
    total = 0
    for which in range(ends.size):
        start, end = starts[which], ends[which]
        if last_n and end - start > last_n:
            start = end - last_n
        counts[which] = end - start
        if start != total:
            copy_run_kernel(ts, total, ts, start, end - start)
            copy_run_kernel(values, total, values, start, end - start)
            if orders.size:
                copy_run_kernel(orders, total, orders, start, end - start)
        total += end - start
    return total

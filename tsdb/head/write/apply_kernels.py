"""Apply: resolves the ids of decoded records to refs, and appends their samples to open slices or the late list.

Both kernels are called by the head's writer thread; `append` under the head's lock. Tables grow in Python: a kernel
without enough capacity stores its cursor and returns what it needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.codec.records.log_record_kernels import FLAG_IMPORT_TICK
from tsdb.head.slices.address_kernels import f64_at, i32_at, i64_at, signed, u32_at
from tsdb.head.slices.rows import (
    CLOCK_COVERAGE,
    CLOCK_OPEN_FROM,
    CLOCK_WATERMARK,
    IGNORED_REF,
    LATE_CAPACITY,
    LATE_COUNT,
    LATE_LAST,
    LATE_LAST_SIZE,
    LATE_ORDER,
    LATE_PREV,
    LATE_REF,
    LATE_TS,
    LATE_VALUE,
    OPEN_CAPACITY,
    OPEN_COUNT,
    OPEN_END,
    OPEN_LAST,
    OPEN_LAST_SIZE,
    OPEN_NEWEST_BROKER,
    OPEN_NEWEST_OFFSET,
    OPEN_PREV,
    OPEN_REF,
    OPEN_START,
    OPEN_TS,
    OPEN_VALUE,
    Rows,
)
from tsdb.index.series_table_kernels import NO_REF

# Results of `append`, which say what is needed before it can continue.
DONE = 0
IMPORT_TICK = 1  # Cursor is past the tick's record.
NEED_SLICE = 2  # cursor[WANTED] is the start of the missing slice.
GROW_SLICE = 3  # cursor[WANTED] is the row of the full slice.
GROW_SLICE_LAST = 4  # The row cursor[WANTED] has a ref beyond its `last`.
GROW_LATE = 5
GROW_LATE_LAST = 6
SEAL_FIRST = 7  # Too many slices wait to be sealed. Returned at the start of a record.

CURSOR_RECORD, CURSOR_SAMPLE, CURSOR_WANTED = 0, 1, 2
TALLY_LATE, TALLY_AHEAD, TALLY_UNKNOWN = 0, 1, 2


@kernel
def append_kernel(
    flags: NDArray[np.uint8],
    sample_start: NDArray[np.int64],
    offsets: NDArray[np.int64],
    broker_ms: NDArray[np.int64],
    refs: NDArray[np.uint32],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    open_rows: Rows,
    open_count: int,
    open_max: int,
    late: NDArray[np.int64],
    slice_ms: int,
    ahead_ms: int,
    clock: NDArray[np.int64],
    tally: NDArray[np.int64],
    cursor: NDArray[np.int64],
) -> int:
    """Append from the cursor on; returns DONE or what is needed. refs of samples too far ahead become IGNORED_REF.

    A slice [a, a + slice_ms) takes samples while the watermark, the record's own broker time included, is below
    a + 2 slice_ms and it is not sealed: from max(clock[CLOCK_OPEN_FROM], floor(watermark) - slice_ms) on. Samples below
    that or below coverage are late.
    """
    late_count, late_capacity, late_last_size = late[LATE_COUNT], late[LATE_CAPACITY], late[LATE_LAST_SIZE]
    late_ref, late_prev = u32_at(late[LATE_REF], late_capacity), u32_at(late[LATE_PREV], late_capacity)
    late_ts, late_order = i64_at(late[LATE_TS], late_capacity), i64_at(late[LATE_ORDER], late_capacity)
    late_value, late_last = f64_at(late[LATE_VALUE], late_capacity), u32_at(late[LATE_LAST], late_last_size)

    row, start, end = -1, signed(0), signed(0)
    count, capacity, last_size = signed(0), signed(0), signed(0)
    to_ref, to_prev, last = u32_at(0, 0), u32_at(0, 0), u32_at(0, 0)
    to_ts, to_value = i32_at(0, 0), f64_at(0, 0)
    newest_broker = signed(0)

    need = DONE
    record, index = cursor[CURSOR_RECORD], cursor[CURSOR_SAMPLE]
    while record < len(flags):
        broker, offset = broker_ms[record], offsets[record]
        if index == sample_start[record]:
            if broker > clock[CLOCK_WATERMARK]:
                clock[CLOCK_WATERMARK] = broker
                clock[CLOCK_OPEN_FROM] = max(clock[CLOCK_OPEN_FROM], broker - broker % slice_ms - slice_ms)
            if open_count >= open_max and open_rows[0, OPEN_START] < clock[CLOCK_OPEN_FROM]:
                need = SEAL_FIRST
                break
        latest = broker + ahead_ms
        earliest = max(clock[CLOCK_OPEN_FROM], clock[CLOCK_COVERAGE])
        record_end = sample_start[record + 1]
        while index < record_end:
            at = np.uint64(index)  # Unsigned, so that there is no check for a negative index: a tenth of the time.
            ts, ref = ts_ms[at], refs[at]
            if ts > latest:
                tally[TALLY_AHEAD] += 1
                refs[at] = IGNORED_REF
            elif ref == NO_REF:
                tally[TALLY_UNKNOWN] += 1
            elif ts < earliest:
                if late_count == late_capacity:
                    need = GROW_LATE
                    break
                if ref >= late_last_size:
                    need = GROW_LATE_LAST
                    break
                late_ref[late_count], late_ts[late_count], late_value[late_count] = ref, ts, values[at]
                late_order[late_count], late_prev[late_count] = offset, late_last[ref]
                late_count += 1
                late_last[ref] = late_count
            else:
                if row < 0 or ts < start or ts >= end:
                    if row >= 0:
                        open_rows[row, OPEN_COUNT] = count
                    row = _row_of(open_rows, open_count, ts)
                    if row < 0:
                        need = NEED_SLICE
                        cursor[CURSOR_WANTED] = ts - ts % slice_ms
                        break
                    start, end = open_rows[row, OPEN_START], open_rows[row, OPEN_END]
                    count, capacity = open_rows[row, OPEN_COUNT], open_rows[row, OPEN_CAPACITY]
                    last_size = open_rows[row, OPEN_LAST_SIZE]
                    to_ref = u32_at(open_rows[row, OPEN_REF], capacity)
                    to_prev = u32_at(open_rows[row, OPEN_PREV], capacity)
                    to_ts = i32_at(open_rows[row, OPEN_TS], capacity)
                    to_value = f64_at(open_rows[row, OPEN_VALUE], capacity)
                    last = u32_at(open_rows[row, OPEN_LAST], last_size)
                    newest_broker = open_rows[row, OPEN_NEWEST_BROKER]
                if count == capacity:
                    need = GROW_SLICE
                    cursor[CURSOR_WANTED] = row
                    break
                if ref >= last_size:
                    need = GROW_SLICE_LAST
                    cursor[CURSOR_WANTED] = row
                    break
                to = np.uint64(count)
                to_ref[to], to_ts[to], to_value[to] = ref, np.int32(ts - start), values[at]
                to_prev[to] = last[ref]
                count += 1
                last[ref] = count
                open_rows[row, OPEN_NEWEST_OFFSET] = offset
                if broker > newest_broker:
                    newest_broker = broker
                    open_rows[row, OPEN_NEWEST_BROKER] = broker
            index += 1
        if need != DONE:
            break
        record += 1
        if flags[record - 1] & FLAG_IMPORT_TICK:
            need = IMPORT_TICK
            break
    if row >= 0:
        open_rows[row, OPEN_COUNT] = count
    tally[TALLY_LATE] += late_count - late[LATE_COUNT]
    late[LATE_COUNT] = late_count
    cursor[CURSOR_RECORD], cursor[CURSOR_SAMPLE] = record, index
    return need


@helper
def _row_of(open_rows: Rows, open_count: int, ts: int) -> int:
    """Row of the slice that holds ts, or -1. The newest slices get nearly all samples, so look there first."""
    for row in range(open_count - 1, -1, -1):
        if open_rows[row, OPEN_START] <= ts < open_rows[row, OPEN_END]:
            return row
    return -1

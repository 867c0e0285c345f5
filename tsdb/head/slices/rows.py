"""Rows: describe slices and the late list for kernels, as int64 rows of counts, bounds and addresses of arrays.

With a table of such rows one kernel call can walk every slice. Row layouts are lists of column numbers; the classes
that own the arrays fill the rows.
"""

from __future__ import annotations

import numpy as np

from tsdb.codec.jit import Array2

Rows = Array2[np.int64]
"""Rows of slices, (n, columns) int64: one row for each slice."""

# Stands in place of a ref for a sample too far ahead of its broker time. No reader sees the sample.
IGNORED_REF = 0xFFFFFFFE

# An open slice. Entries are appended. The entries of a series are a chain from the newest: `last` (per ref) and `prev`
# (per entry) have a position plus one, and 0 ends the chain. So fresh pages of zeros are an empty table.
(
    OPEN_START,  # ms, inclusive
    OPEN_END,  # ms, exclusive
    OPEN_COUNT,
    OPEN_CAPACITY,
    OPEN_REF,  # address, u32
    OPEN_TS,  # address, i32, ms from the start
    OPEN_VALUE,  # address, f64
    OPEN_PREV,  # address, u32
    OPEN_LAST,  # address, u32 per ref
    OPEN_LAST_SIZE,
    OPEN_NEWEST_OFFSET,  # of the newest record that the slice got
    OPEN_NEWEST_BROKER,
) = range(12)
OPEN_COLUMNS = 12

# The late list has the layout of an open slice, with whole timestamps and the offset of each entry's record.
(
    LATE_COUNT,
    LATE_CAPACITY,
    LATE_REF,  # address, u32
    LATE_TS,  # address, i64
    LATE_VALUE,  # address, f64
    LATE_ORDER,  # address, i64
    LATE_PREV,  # address, u32
    LATE_LAST,  # address, u32 per ref
    LATE_LAST_SIZE,
) = range(9)
LATE_COLUMNS = 9

# A sealed slice. Column `slot` has data[column_end[slot - 1]:column_end[slot]] and times of axis axis_of[slot].
(
    SEALED_START,  # ms, inclusive; axis times are relative to it
    SEALED_END,  # ms, exclusive
    SEALED_SLOTS,
    SEALED_COLUMN_END,  # address, u32 per slot
    SEALED_AXIS_OF,  # address, u32 per slot
    SEALED_DATA,  # address, u8
    SEALED_DATA_SIZE,
    SEALED_AXES,  # axes in all
    SEALED_AXIS_END,  # address, u32 per axis
    SEALED_AXIS_COUNT,  # address, u32 per axis
    SEALED_AXIS_DATA,  # address, u8
    SEALED_AXIS_DATA_SIZE,
    SEALED_REFS,  # address, u32: ascending refs where SEALED_SLOT_OF is sorted by ref, else 0
    SEALED_SLOT_OF,  # address, u32: slot of each of SEALED_REFS, or slot + 1 per ref (0: none)
    SEALED_SLOT_OF_SIZE,
    SEALED_ORDER_END,  # address, u32 per slot: orders of late samples; 0 when the slice has none
    SEALED_ORDER_DATA,  # address, u8
    SEALED_ORDER_DATA_SIZE,
) = range(18)
SEALED_COLUMNS = 18

# The clock of a head, int64 ms: the watermark, the start of the first slice that may take samples, coverage.
CLOCK_WATERMARK, CLOCK_OPEN_FROM, CLOCK_COVERAGE = 0, 1, 2

"""Gathers COLUMNS: copies the columns of chosen series out of all sealed slices in two calls, whole runs at a time.

`plan` finds the columns of each slice in their order there and returns the capacity that they need; `copy` fills it.
Columns that are neighbours in the slice are copied together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.codec.memory_kernels import as_int64, copy_bytes
from tsdb.codec.overlay_kernels import copy_run_kernel
from tsdb.codec.sort_kernels import argsort_kernel
from tsdb.head.read.gather_kernels import slot_of
from tsdb.head.slices.address_kernels import signed, u8_at, u32_at
from tsdb.head.slices.rows import (
    SEALED_AXES,
    SEALED_AXIS_COUNT,
    SEALED_AXIS_DATA,
    SEALED_AXIS_DATA_SIZE,
    SEALED_AXIS_END,
    SEALED_AXIS_OF,
    SEALED_COLUMN_END,
    SEALED_DATA,
    SEALED_DATA_SIZE,
    SEALED_SLOTS,
    SEALED_START,
    Rows,
)

# Columns of `needs`, which `plan` fills for each slice.
NEED_COLUMNS, NEED_AXES, NEED_DATA, NEED_AXIS_DATA, NEED_SAMPLES = range(5)
NEED_SIZE = 5
_INDEX_MASK = np.uint64(0xFFFFFFFF)
_SLOT_SHIFT = np.uint64(32)


@kernel
def plan_kernel(rows: Rows, refs: NDArray[np.uint32], keys: Array2[np.uint64], needs: Array2[np.int64]) -> None:
    """Set keys[row, :needs[row, NEED_COLUMNS]] to slot << 32 | index into refs, ascending; needs (rows, NEED_SIZE)."""
    # Slices have nearly the same layout, so the order of one is the order of the next: sorting is rare.
    order = np.arange(refs.size)
    for row in range(len(rows)):
        found, ascending = 0, True
        for place in range(refs.size):
            index = order[place]
            slot = slot_of(rows, row, refs[index])
            if slot >= 0:
                key = np.uint64(slot) << _SLOT_SHIFT | np.uint64(index)
                ascending = ascending and (found == 0 or keys[row, found - 1] < key)
                keys[row, found] = key
                found += 1
        if not ascending:
            _sort(keys[row, :found])
            _reorder(order, keys[row, :found])
        needs[row, NEED_COLUMNS] = found
        _need(rows, row, keys[row, :found], needs)


@helper
def _sort(keys: NDArray[np.uint64]) -> None:
    places, sorted_keys = np.empty(keys.size, np.int64), np.empty(keys.size, np.int64)
    argsort_kernel(as_int64(keys), 0, places, sorted_keys)
    for place in range(keys.size):
        sorted_keys[place] = keys[places[place]]
    copy_bytes(keys, 0, sorted_keys, 0, keys.size * 8)


@helper
def _reorder(order: NDArray[np.int64], keys: NDArray[np.uint64]) -> None:
    """Put the indices of keys first, in their order; the others keep theirs."""
    first = np.zeros(order.size, np.bool_)
    rest = np.empty(order.size, np.int64)
    for place in range(keys.size):
        first[signed(keys[place] & _INDEX_MASK)] = True
    left = 0
    for place in range(order.size):
        if not first[order[place]]:
            rest[left] = order[place]
            left += 1
    for place in range(keys.size):
        order[place] = signed(keys[place] & _INDEX_MASK)
    copy_run_kernel(order, keys.size, rest, 0, left)


@helper
def _need(rows: Rows, row: int, keys: NDArray[np.uint64], needs: NDArray[np.int64]) -> None:
    slots, axes = rows[row, SEALED_SLOTS], rows[row, SEALED_AXES]
    column_end, axis_of = u32_at(rows[row, SEALED_COLUMN_END], slots), u32_at(rows[row, SEALED_AXIS_OF], slots)
    axis_end, axis_count = u32_at(rows[row, SEALED_AXIS_END], axes), u32_at(rows[row, SEALED_AXIS_COUNT], axes)
    seen = np.zeros(axes, np.bool_)
    for key in keys:
        slot = signed(key >> _SLOT_SHIFT)
        axis = signed(axis_of[slot])
        needs[row, NEED_DATA] += _size(column_end, slot)
        needs[row, NEED_SAMPLES] += axis_count[axis]
        if not seen[axis]:
            seen[axis] = True
            needs[row, NEED_AXES] += 1
            needs[row, NEED_AXIS_DATA] += _size(axis_end, axis)


@helper
def _size(ends: NDArray[np.uint32], index: int) -> int:
    return signed(ends[index]) - (signed(ends[index - 1]) if index else signed(0))


@kernel
def copy_kernel(
    rows: Rows,
    keys: Array2[np.uint64],
    needs: Array2[np.int64],
    series_index: NDArray[np.uint32],
    column_lengths: NDArray[np.uint32],
    axis_index: NDArray[np.uint32],
    axis_base_ms: NDArray[np.int64],
    axis_lengths: NDArray[np.uint32],
    axis_counts: NDArray[np.uint32],
    axis_data: NDArray[np.uint8],
    data: NDArray[np.uint8],
) -> None:
    """Fill the arrays, slice after slice."""
    column_at, axis_at, data_at, axis_data_at = 0, 0, 0, 0
    for row in range(len(rows)):
        slots, axes = rows[row, SEALED_SLOTS], rows[row, SEALED_AXES]
        column_end, axis_of = u32_at(rows[row, SEALED_COLUMN_END], slots), u32_at(rows[row, SEALED_AXIS_OF], slots)
        axis_end, counts = u32_at(rows[row, SEALED_AXIS_END], axes), u32_at(rows[row, SEALED_AXIS_COUNT], axes)
        from_axis = u8_at(rows[row, SEALED_AXIS_DATA], rows[row, SEALED_AXIS_DATA_SIZE])
        from_data = u8_at(rows[row, SEALED_DATA], rows[row, SEALED_DATA_SIZE])
        number = np.full(axes, -1, np.int64)
        run_start, run_end = signed(0), signed(0)
        for place in range(needs[row, NEED_COLUMNS]):
            key = keys[row, place]
            slot = signed(key >> _SLOT_SHIFT)
            size, axis = _size(column_end, slot), signed(axis_of[slot])
            if number[axis] < 0:
                axis_size = _size(axis_end, axis)
                copy_bytes(axis_data, axis_data_at, from_axis, signed(axis_end[axis]) - axis_size, axis_size)
                axis_base_ms[axis_at] = rows[row, SEALED_START]
                axis_lengths[axis_at], axis_counts[axis_at] = axis_size, counts[axis]
                number[axis] = axis_at
                axis_at += 1
                axis_data_at += axis_size
            series_index[column_at] = key & _INDEX_MASK
            column_lengths[column_at], axis_index[column_at] = size, number[axis]
            column_at += 1
            if signed(column_end[slot]) - size != run_end:
                copy_bytes(data, data_at, from_data, run_start, run_end - run_start)
                data_at += run_end - run_start
                run_start = signed(column_end[slot]) - size
            run_end = signed(column_end[slot])
        copy_bytes(data, data_at, from_data, run_start, run_end - run_start)
        data_at += run_end - run_start

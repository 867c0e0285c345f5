"""Rebuild: makes sealed slices from an open slice, smaller slices, late samples, or the rest of a dropped slice.

Called by the writer thread without the lock; nothing here changes the head.

The builder of a slice makes one sealed slice from blocks of runs, in layout order.

Blocks bound the memory that sealing and merging need beside their result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.head.read.gather import Runs, collect, merge_overlay
from tsdb.head.read.gather_kernels import NOT_LATE
from tsdb.head.slices.late_list import LateList, grouped
from tsdb.head.slices.open_slice import OpenSlices
from tsdb.head.slices.rows import LATE_COLUMNS, OPEN_COLUMNS, OPEN_END, OPEN_NEWEST_BROKER, OPEN_NEWEST_OFFSET
from tsdb.head.slices.seal_kernels import (
    AT_AXES,
    AT_COLUMNS,
    AT_DATA,
    AT_ORDER_MAX,
    AT_ORDERS,
    AT_SAMPLES,
    AT_SIZE,
    AT_TIMES,
    bounds_kernel,
    encode_axes_kernel,
    encode_columns_kernel,
    rehash_kernel,
    times_bounds_kernel,
)
from tsdb.head.slices.sealed_slice import SealedSlice, SealedSlices, rows_of
from tsdb.index.index import SeriesIndex
from tsdb.model.arrays import resized

BLOCK_SERIES = 4096  # Series that are encoded at a time. This bounds the memory beside the result.
NO_LATE = np.zeros(LATE_COLUMNS, np.int64)
NO_OPEN = np.zeros((0, OPEN_COLUMNS), np.int64)
_NO_SLICES = rows_of(())

TABLE_MIN = 1024
SCRATCH_PER_SAMPLE, SCRATCH_MIN = 4, 64  # encode_values_kernel requires this.

_Element = TypeVar("_Element", bound=np.generic)


def seal_open(index: SeriesIndex, slices: OpenSlices, row: int) -> SealedSlice | None:
    """The sealed form of an open slice; None when it is empty."""
    refs = _in_layout(index, slices.refs(row))
    at = slices.rows[row]
    start_ms, end_ms = slices.start_ms(row), int(at[OPEN_END])
    builder = SliceBuilder(start_ms, end_ms, len(refs), keep_orders=False)
    for block in _blocks(len(refs)):
        runs = collect(refs[block], start_ms, end_ms, slices.rows[row : row + 1], NO_LATE, with_orders=False)
        builder.add(refs[block], runs.tidy())
    return builder.finish(int(at[OPEN_NEWEST_OFFSET]), int(at[OPEN_NEWEST_BROKER]))


def merge_slices(
    index: SeriesIndex, slices: tuple[SealedSlice, ...], start_ms: int, end_ms: int, since_offset: int
) -> SealedSlice:
    """Merge slices that lie in [start_ms, end_ms) into one. Orders below since_offset are left out."""
    refs = _in_layout(index, _union([slice_.series for slice_ in slices]))
    with_orders = any(slice_.order_max >= since_offset for slice_ in slices)
    held = SealedSlices(rows_of(slices), _NO_SLICES, (slices,))
    builder = SliceBuilder(start_ms, end_ms, len(refs), keep_orders=with_orders)
    for block in _blocks(len(refs)):
        runs = merge_overlay(held, refs[block], start_ms, end_ms, no_runs(len(refs[block])), with_orders=with_orders)
        runs.orders[runs.orders < since_offset] = NOT_LATE
        builder.add(refs[block], runs)
    merged = builder.finish(
        max(slice_.newest_offset for slice_ in slices), max(slice_.newest_broker_ms for slice_ in slices)
    )
    assert merged is not None, "slices that hold samples merge into one that does"
    return merged


def fold_late(
    index: SeriesIndex,
    slices: tuple[SealedSlice, ...],
    late: LateList,
    entries: NDArray[np.int64],
    start_ms: int,
    end_ms: int,
    newest: tuple[int, int],
) -> SealedSlice:
    """Merge sealed slices and entries of the late list into the slice [start_ms, end_ms).

    Late entries win; of overlapping slices the later wins. entries: positions in the list, ascending. newest: offset
    and broker time of the newest record before sealing.
    """
    refs = _in_layout(index, _union([*(slice_.series for slice_ in slices), late.refs[entries]]))
    overlay = _late_runs(late, entries, refs)
    held = SealedSlices(_NO_SLICES, rows_of(slices), (slices,))
    builder = SliceBuilder(start_ms, end_ms, len(refs), keep_orders=True)
    for block in _blocks(len(refs)):
        part = overlay.part(block.start, block.stop)
        builder.add(refs[block], merge_overlay(held, refs[block], start_ms, end_ms, part, with_orders=True))
    folded = builder.finish(*newest)
    assert folded is not None, "there are entries to fold"
    return folded


def late_remains(index: SeriesIndex, slice_: SealedSlice, since_offset: int) -> SealedSlice | None:
    """The late samples of a slice from since_offset on, which stay when the slice is dropped. None without such
    samples."""
    refs = _in_layout(index, slice_.series)
    held = SealedSlices(rows_of((slice_,)), _NO_SLICES, (slice_,))
    builder = SliceBuilder(slice_.start_ms, slice_.end_ms, len(refs), keep_orders=True)
    for block in _blocks(len(refs)):
        runs = merge_overlay(
            held, refs[block], slice_.start_ms, slice_.end_ms, no_runs(len(refs[block])), with_orders=True
        )
        builder.add(refs[block], _only(runs, runs.orders >= since_offset))
    return builder.finish(slice_.newest_offset, slice_.newest_broker_ms)


def no_runs(series: int) -> Runs:
    """Empty runs of `series` series."""
    zeros = np.zeros(series, np.int64)
    return Runs(zeros, zeros, np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.int64))


def _only(runs: Runs, wanted: NDArray[np.bool_]) -> Runs:
    """Only the samples with `wanted`, as runs without gaps."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(wanted, dtype=np.int64)])
    return Runs(before[runs.starts], before[runs.ends], runs.ts_ms[wanted], runs.values[wanted], runs.orders[wanted])


def _late_runs(late: LateList, entries: NDArray[np.int64], refs: NDArray[np.uint32]) -> Runs:
    """Entries of the late list as a tidy run per ref, in the order of refs."""
    place_of = np.empty(int(refs.max()) + 1, np.int64)
    place_of[refs] = np.arange(len(refs))
    starts, order = grouped(place_of[late.refs[entries]], len(refs))
    picked = entries[order]
    runs = Runs(starts[:-1], starts[1:].copy(), late.ts_ms[picked], late.values[picked], late.orders[picked])
    return runs.tidy()


def _union(refs: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """Refs in any of these, ascending."""
    held = np.zeros(max(int(some.max()) for some in refs) + 1, np.bool_)
    for some in refs:
        held[some] = True
    return np.flatnonzero(held).astype(np.uint32)


def _in_layout(index: SeriesIndex, refs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Refs in layout order, which puts series that are read together next to each other."""
    return np.ascontiguousarray(refs[index.layout_order(refs)])


def _blocks(series: int) -> Iterator[slice]:
    for first in range(0, series, BLOCK_SERIES):
        yield slice(first, min(first + BLOCK_SERIES, series))


class SliceBuilder:
    """Builds the slice [start_ms, end_ms) from blocks of at most `columns_max` series in all.

    keep_orders: late samples keep their offset.
    """

    def __init__(self, start_ms: int, end_ms: int, columns_max: int, *, keep_orders: bool) -> None:
        self._start_ms, self._end_ms = start_ms, end_ms
        self._keep_orders = keep_orders
        self._at = np.zeros(AT_SIZE, np.int64)
        self._slot_ref = np.empty(columns_max, np.uint32)
        self._column_end = np.empty(columns_max, np.uint32)
        self._axis_of = np.empty(columns_max, np.uint32)
        self._axis_hash = np.empty(columns_max, np.uint64)
        self._axis_start = np.zeros(columns_max + 1, np.int64)
        self._order_end = np.empty(columns_max if keep_orders else 0, np.uint32)
        self._table = np.zeros(TABLE_MIN, np.uint32)
        self._times = np.empty(0, np.int64)
        self._data = np.empty(0, np.uint8)
        self._order_data = np.empty(0, np.uint8)
        self._scratch = np.empty(SCRATCH_MIN, np.int64)
        self._at[AT_ORDER_MAX] = NOT_LATE

    def add(self, refs: NDArray[np.uint32], runs: Runs) -> None:
        """Add a column per ref whose run has samples, all within the slice; runs ascend strictly by time."""
        encoded, samples, longest = bounds_kernel(runs.starts, runs.ends)
        at = self._at
        self._data = _with_capacity(self._data, int(at[AT_DATA]) + encoded)
        self._times = _with_capacity(self._times, int(at[AT_TIMES]) + samples)
        self._scratch = _with_capacity(self._scratch, SCRATCH_PER_SAMPLE * max(longest, 0) + SCRATCH_MIN)
        self._grow_table(int(at[AT_AXES]) + len(refs))
        if self._keep_orders:
            self._order_data = _with_capacity(self._order_data, int(at[AT_ORDERS]) + encoded)
        encode_columns_kernel(
            refs,
            runs.starts,
            runs.ends,
            runs.ts_ms,
            runs.values,
            runs.orders if self._keep_orders else np.empty(0, np.int64),
            self._start_ms,
            at,
            self._slot_ref,
            self._column_end,
            self._axis_of,
            self._data,
            self._axis_hash,
            self._axis_start,
            self._times,
            self._table,
            self._order_end,
            self._order_data,
            self._scratch,
        )

    def finish(self, newest_offset: int, newest_broker_ms: int) -> SealedSlice | None:
        """The slice; None when no run had a sample."""
        at = self._at
        columns = int(at[AT_COLUMNS])
        if not columns:
            return None
        axis_end, axis_count, axis_data = self._encode_axes()
        refs, slot_of = _slots(self._slot_ref[:columns])
        order_max = int(at[AT_ORDER_MAX])
        late = order_max != NOT_LATE
        return SealedSlice(
            start_ms=self._start_ms,
            end_ms=self._end_ms,
            samples=int(at[AT_SAMPLES]),
            column_end=self._column_end[:columns].copy(),
            axis_of=self._axis_of[:columns].copy(),
            data=self._data[: at[AT_DATA]].copy(),
            axis_end=axis_end,
            axis_count=axis_count,
            axis_data=axis_data,
            refs=refs,
            slot_of=slot_of,
            order_end=self._order_end[:columns].copy() if late else None,
            order_data=self._order_data[: at[AT_ORDERS]].copy() if late else np.empty(0, np.uint8),
            newest_offset=newest_offset,
            newest_broker_ms=newest_broker_ms,
            order_max=order_max,
        )

    def _grow_table(self, axes_max: int) -> None:
        if 2 * axes_max <= len(self._table):
            return
        self._table = np.zeros(1 << (2 * axes_max).bit_length(), np.uint32)
        rehash_kernel(self._axis_hash, int(self._at[AT_AXES]), self._table)

    def _encode_axes(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8]]:
        axes = int(self._at[AT_AXES])
        axis_end, axis_count = np.empty(axes, np.uint32), np.empty(axes, np.uint32)
        out = np.empty(times_bounds_kernel(self._axis_start, axes), np.uint8)
        size = encode_axes_kernel(self._times, self._axis_start, axes, axis_end, axis_count, out, self._scratch)
        return axis_end, axis_count, out[:size].copy()


def _with_capacity(array: NDArray[_Element], size: int) -> NDArray[_Element]:
    return array if len(array) >= size else resized(array, size + size // 2)


def _slots(slot_ref: NDArray[np.uint32]) -> tuple[NDArray[np.uint32] | None, NDArray[np.uint32]]:
    """(refs, slot_of) of SealedSlice, whichever form is smaller."""
    slots = np.arange(len(slot_ref), dtype=np.uint32)
    dense_size = int(slot_ref.max()) + 1
    if dense_size <= 2 * len(slot_ref):
        slot_of = np.zeros(dense_size, np.uint32)
        slot_of[slot_ref] = slots + 1
        return None, slot_of
    by_ref = np.argsort(slot_ref)
    return slot_ref[by_ref], slots[by_ref]

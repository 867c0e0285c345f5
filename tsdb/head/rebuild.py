"""Rebuild: makes sealed slices from an open slice, smaller slices, late samples, or the rest of a dropped slice.

Called by the writer thread without the lock; nothing here changes the head.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tsdb.head.read.gather import Runs, collect, merge_overlay
from tsdb.head.read.gather_kernels import NOT_LATE
from tsdb.head.slice_builder import SliceBuilder
from tsdb.head.slices.late_list import LateList, grouped
from tsdb.head.slices.open_slice import OpenSlices
from tsdb.head.slices.rows import LATE_COLUMNS, OPEN_COLUMNS, OPEN_END, OPEN_NEWEST_BROKER, OPEN_NEWEST_OFFSET
from tsdb.head.slices.sealed_slice import SealedSlice, SealedSlices, rows_of
from tsdb.index.index import SeriesIndex

BLOCK_SERIES = 4096  # Series encoded at a time: bounds the memory beside the result.
NO_LATE = np.zeros(LATE_COLUMNS, np.int64)
NO_OPEN = np.zeros((0, OPEN_COLUMNS), np.int64)
_NO_SLICES = rows_of(())


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

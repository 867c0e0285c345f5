"""Gather of COLUMNS from several heads in a handful of kernel calls.

With 18 heads the calls themselves, and the wait for the GIL after each, cost a small read more than its copying does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.head.gather import (
    COLLECT_PER_REF,
    NO_ORDERS,
    Columns,
    ColumnsResult,
    Held,
    RawResult,
    Runs,
    check_samples,
    compact,
)
from tsdb.head.gather_columns_kernels import (
    NEED_AXES,
    NEED_AXIS_DATA,
    NEED_COLUMNS,
    NEED_DATA,
    NEED_SAMPLES,
    NEED_SIZE,
)
from tsdb.head.gather_many_kernels import collect_many_kernel, copy_many_kernel, plan_many_kernel
from tsdb.head.head import Head, check_range
from tsdb.head.rows import SEALED_END, SEALED_START, Rows


def gather_columns_many(
    heads: Sequence[Head], refs: Sequence[NDArray[np.uint32]], start_ms: int, end_ms: int, *, samples_max: int
) -> list[ColumnsResult]:
    """What Head.gather_columns gives for each head and its refs.

    Raises Overloaded (samples_limit) when they have over samples_max samples together, InvalidRequest (bad_range).
    """
    check_range(start_ms, end_ms)
    if not heads:
        return []
    joined, ref_ends = np.concatenate(refs), _ends(refs)
    held, overlay = _snapshots(heads, joined, ref_ends, start_ms, end_ms)
    if any(len(one.below) for one in held):
        return _one_by_one(heads, refs, start_ms, end_ms, samples_max)
    columns = _columns([one.sealed for one in held], joined, ref_ends, start_ms, end_ms, samples_max)
    overlays = _split(compact(overlay.tidy()), ref_ends)
    results = [ColumnsResult(*both) for both in zip(columns, overlays, strict=True)]
    check_samples(sum(result.samples for result in results), samples_max)
    return results


def _one_by_one(
    heads: Sequence[Head], refs: Sequence[NDArray[np.uint32]], start_ms: int, end_ms: int, samples_max: int
) -> list[ColumnsResult]:
    """Slices of late samples below coverage have to be decoded and merged: rare, and a head's own business."""
    results = [
        head.gather_columns(some, start_ms, end_ms, samples_max=samples_max)
        for head, some in zip(heads, refs, strict=True)
    ]
    check_samples(sum(result.samples for result in results), samples_max)
    return results


def _snapshots(
    heads: Sequence[Head], refs: NDArray[np.uint32], ref_ends: NDArray[np.int64], start_ms: int, end_ms: int
) -> tuple[list[Held], Runs]:
    """Sealed slices, and a copy of open and late samples, of one moment of all heads."""
    with ExitStack() as locks:
        # A writer holds the lock of one head only, and all reads take them in the same order.
        for head in sorted(heads, key=lambda head: head.partition):
            locks.enter_context(head.contents.lock)
        parts = [head.contents for head in heads]
        open_rows = [part.open.rows[: part.open.count] for part in parts]
        rows, row_ends, late = np.concatenate(open_rows), _ends(open_rows), np.stack([part.late.row for part in parts])
        held = [part.held for part in parts]
        starts = np.empty(len(refs) + 1, np.int64)
        room = len(refs) * COLLECT_PER_REF
        while True:
            ts, values = np.empty(room, np.int64), np.empty(room, np.float64)
            total = collect_many_kernel(
                refs, ref_ends, start_ms, end_ms, rows, row_ends, late, starts, ts, values, NO_ORDERS
            )
            if total <= room:
                return held, Runs(starts[:-1], starts[1:].copy(), ts, values, NO_ORDERS)
            room = total


def _columns(
    sealed: Sequence[Rows],
    refs: NDArray[np.uint32],
    ref_ends: NDArray[np.int64],
    start_ms: int,
    end_ms: int,
    samples_max: int,
) -> list[Columns]:
    every = np.concatenate(sealed)
    touched = (every[:, SEALED_START] < end_ms) & (every[:, SEALED_END] > start_ms)
    rows = every[touched]
    row_ends = np.concatenate(([0], np.cumsum(touched)))[_ends(sealed)]
    keys = np.empty(int((np.diff(row_ends) * np.diff(ref_ends)).sum()), np.uint64)
    needs = np.zeros((len(rows), NEED_SIZE), np.int64)
    need_ends = np.zeros((len(sealed) + 1, NEED_SIZE), np.int64)
    plan_many_kernel(rows, row_ends, refs, ref_ends, keys, needs, need_ends)
    ends = need_ends.tolist()
    total = ends[-1]
    check_samples(total[NEED_SAMPLES], samples_max)
    series_index, column_lengths, axis_index = (np.empty(total[NEED_COLUMNS], np.uint32) for _ in range(3))
    axis_lengths, axis_counts = (np.empty(total[NEED_AXES], np.uint32) for _ in range(2))
    axis_base_ms = np.empty(total[NEED_AXES], np.int64)
    axes, data = (np.empty(total[need], np.uint8) for need in (NEED_AXIS_DATA, NEED_DATA))
    copy_many_kernel(
        rows,
        row_ends,
        ref_ends,
        keys,
        needs,
        need_ends,
        series_index,
        column_lengths,
        axis_index,
        axis_base_ms,
        axis_lengths,
        axis_counts,
        axes,
        data,
    )
    return [
        Columns(
            samples=last[NEED_SAMPLES] - first[NEED_SAMPLES],
            series_index=series_index[first[NEED_COLUMNS] : last[NEED_COLUMNS]],
            column_lengths=column_lengths[first[NEED_COLUMNS] : last[NEED_COLUMNS]],
            axis_index=axis_index[first[NEED_COLUMNS] : last[NEED_COLUMNS]],
            axis_base_ms=axis_base_ms[first[NEED_AXES] : last[NEED_AXES]],
            axis_lengths=axis_lengths[first[NEED_AXES] : last[NEED_AXES]],
            axis_counts=axis_counts[first[NEED_AXES] : last[NEED_AXES]],
            axes=axes[first[NEED_AXIS_DATA] : last[NEED_AXIS_DATA]],
            data=data[first[NEED_DATA] : last[NEED_DATA]],
        )
        for first, last in pairwise(ends)
    ]


def _split(raw: RawResult, ref_ends: NDArray[np.int64]) -> list[RawResult]:
    """The samples of each head; arrays are shared."""
    before = np.concatenate(([0], np.cumsum(raw.counts, dtype=np.int64)))[ref_ends].tolist()
    return [
        RawResult(raw.counts[ref:ref_end], raw.ts_ms[start:end], raw.values[start:end])
        for (ref, ref_end), (start, end) in zip(pairwise(ref_ends.tolist()), pairwise(before), strict=True)
    ]


def _ends(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.int64]:
    """0, then where each part ends among all."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)

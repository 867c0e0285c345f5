"""Gather of COLUMNS from several heads in a handful of kernel calls.

With 18 heads the calls themselves, and the wait for the GIL after each, cost a small read more than its copying does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import RawResult, SealedColumns
from tsdb.head.head import Head, check_range
from tsdb.head.read.gather import Admit, admit_all, check_samples
from tsdb.head.read.gather_columns_kernels import (
    NEED_AXES,
    NEED_AXIS_DATA,
    NEED_COLUMNS,
    NEED_DATA,
    NEED_SAMPLES,
    NEED_SIZE,
)
from tsdb.head.read.gather_many_kernels import copy_many_kernel, plan_many_kernel
from tsdb.head.read.unsealed_cache import CapturePoint, UnsealedCache, UnsealedCapture, ends_of
from tsdb.head.slices.contents import Contents
from tsdb.head.slices.rows import Rows
from tsdb.head.slices.sealed_slice import SealedSlices
from tsdb.head.state import HeadState


@dataclass(frozen=True, slots=True)
class ManyRefs:
    """Refs into several heads: refs (n,) uint32, those of head i in [ends[i], ends[i + 1]). ends (heads + 1,) int64."""

    refs: NDArray[np.uint32]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.uint32]]) -> ManyRefs:
        """parts: the refs of each head."""
        return cls(np.concatenate((*parts, np.empty(0, np.uint32))), ends_of(parts))

    def parts(self) -> list[NDArray[np.uint32]]:
        """The refs of each head; arrays are shared."""
        return [self.refs[first:end] for first, end in pairwise(self.ends.tolist())]


@dataclass(frozen=True, slots=True)
class SeriesSnapshot:
    """Chosen series of several heads, all at the same moment. states, held: one per head.

    held: sealed slices, which never change. overlay: tidy open and late samples of the range, of all heads together.
    unsealed: all open and late samples, for the next snapshot of the same series.
    """

    states: list[HeadState]
    held: list[SealedSlices]
    overlay: RawResult
    unsealed: UnsealedCache


@dataclass(frozen=True, slots=True)
class HeadsSnapshot:
    """States of several heads and their capture point at one moment. changes: see Contents."""

    changes: list[int]
    states: list[HeadState]
    point: CapturePoint


class HeadsSnapshotCache:
    """The last snapshot of several heads: many reads find nothing changed since. Thread-safe."""

    def __init__(self) -> None:
        self._last: HeadsSnapshot | None = None

    def locked(self, parts: Sequence[Contents]) -> HeadsSnapshot:
        """Take the snapshot now. The caller has acquired all locks."""
        changes = [part.changes for part in parts]
        last = self._last
        if last is None or last.changes != changes:
            self._last = last = HeadsSnapshot(
                changes, [part.state_locked() for part in parts], CapturePoint.locked(parts)
            )
        return last


def snapshot_many(
    heads: Sequence[Head],
    refs: ManyRefs,
    start_ms: int,
    end_ms: int,
    before: UnsealedCache | None = None,
    last: HeadsSnapshotCache | None = None,
) -> SeriesSnapshot:
    """Copy open and late samples of several heads, and reference their sealed slices.

    heads: ascending by partition, so that all reads take the locks in one order; a writer takes only one lock. before:
    `unsealed` of an earlier snapshot of the same refs of the same heads. last: shared by snapshots of any refs.

    Raises InvalidRequest (bad_range) for an empty range.
    """
    check_range(start_ms, end_ms)
    parts = [head.contents for head in heads]
    with _locked(parts):
        now, held = (last or HeadsSnapshotCache()).locked(parts), [part.held for part in parts]
        capture = UnsealedCapture.locked(now.point, refs.refs, refs.ends, start_ms, end_ms, before)
    unsealed = capture.cache()
    return SeriesSnapshot(now.states, held, unsealed.within(start_ms, end_ms), unsealed)


@contextmanager
def _locked(parts: Sequence[Contents]) -> Iterator[None]:
    taken = []
    try:
        for part in parts:
            part.lock.acquire()
            taken.append(part.lock)
        yield
    finally:
        for lock in taken:
            lock.release()


def columns_many(
    sealed: Sequence[Rows], refs: ManyRefs, *, samples_max: int, admit: Admit = admit_all
) -> list[SealedColumns]:
    """Whole columns of some sealed slices of each head, as gather_columns gives them. No lock needed.

    admit: called before their memory is taken; its errors pass through. Raises Overloaded (samples_limit) when the
    columns hold over samples_max samples together.
    """
    if not sealed:
        return []
    rows, row_ends = np.concatenate(sealed), ends_of(sealed)
    keys = np.empty(int((np.diff(row_ends) * np.diff(refs.ends)).sum()), np.uint64)
    needs = np.zeros((len(rows), NEED_SIZE), np.int64)
    need_ends = np.zeros((len(sealed) + 1, NEED_SIZE), np.int64)
    plan_many_kernel(rows, row_ends, refs.refs, refs.ends, keys, needs, need_ends)
    ends = need_ends.tolist()
    total = ends[-1]
    check_samples(total[NEED_SAMPLES], samples_max)
    admit(12 * total[NEED_COLUMNS] + 16 * total[NEED_AXES] + total[NEED_AXIS_DATA] + total[NEED_DATA])
    series_index, column_lengths, axis_index = (np.empty(total[NEED_COLUMNS], np.uint32) for _ in range(3))
    axis_lengths, axis_counts = (np.empty(total[NEED_AXES], np.uint32) for _ in range(2))
    axis_base_ms = np.empty(total[NEED_AXES], np.int64)
    axes, data = (np.empty(total[need], np.uint8) for need in (NEED_AXIS_DATA, NEED_DATA))
    copy_many_kernel(
        rows,
        row_ends,
        refs.ends,
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
        SealedColumns(
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

"""Gather of COLUMNS from several heads in a handful of kernel calls.

With 18 heads the calls themselves, and the wait for the GIL after each, cost a small read more than its copying does.

Open slices and late lists only grow, until entries are removed. Until then the next read of the same series copies only
the entries appended since. A fresh copy is slow, because a series' samples lie scattered among those of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import RawResult, SealedColumns, raw_joined
from tsdb.head.details import DetailsView
from tsdb.head.head import Head
from tsdb.head.read.gather import (
    COLLECT_PER_REF,
    NO_ORDERS,
    Admit,
    Runs,
    admit_all,
    check_samples,
    compact,
    empty_raw,
)
from tsdb.head.read.gather_columns_kernels import (
    NEED_AXES,
    NEED_AXIS_DATA,
    NEED_COLUMNS,
    NEED_DATA,
    NEED_SAMPLES,
    NEED_SIZE,
)
from tsdb.head.read.gather_many_kernels import (
    clip_kernel,
    collect_since_kernel,
    copy_many_kernel,
    plan_many_kernel,
)
from tsdb.head.slices.contents import Contents
from tsdb.head.slices.rows import LATE_COLUMNS, OPEN_COLUMNS, OPEN_COUNT, OPEN_LAST_SIZE, Rows
from tsdb.head.slices.sealed_slice import SealedSlices
from tsdb.head.state import HeadState

# 64 MiB. Above this number only the requested range is copied, and later reads cannot reuse the copy.
SAMPLES_MAX = 4 << 20
_EVER_MS, _NEVER_MS = -(1 << 62), 1 << 62  # Before and after any time that a sample may have.
_GONE = -1  # A taken_out count that no head ever has, so that no read reuses this copy.


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
    unsealed: all open and late samples, for the next snapshot of the same series. details: the details of each head;
    None where no head has any.
    """

    states: list[HeadState]
    held: list[SealedSlices]
    overlay: RawResult
    unsealed: UnsealedCache
    details: list[DetailsView | None] | None

    def detailed(self, refs: ManyRefs, start_ms: int, end_ms: int, admit: Admit = admit_all) -> RawResult | None:
        """The samples of [start_ms, end_ms) of series that have details, in the order of refs; None where no sample has
        details."""
        if self.details is None:
            return None
        parts = [
            (view and view.of(of_head, start_ms, end_ms, admit)) or empty_raw(len(of_head))
            for view, of_head in zip(self.details, refs.parts(), strict=True)
        ]
        return raw_joined(parts) if any(part.details for part in parts) else None


@dataclass(frozen=True, slots=True)
class HeadsSnapshot:
    """States of several heads and their capture point at one moment. changes: see Contents."""

    changes: list[int]
    states: list[HeadState]
    point: CapturePoint


class HeadsSnapshotCache:
    """Keeps the last snapshot of several heads, because many reads come before the next change. Thread-safe."""

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
    *,
    untrimmed_max: int = 0,
) -> SeriesSnapshot:
    """Copy open and late samples of several heads, and reference their sealed slices.

    heads: ascending by partition, so that all reads take the locks in one order; a writer takes only one lock. before:
    `unsealed` of an earlier snapshot of the same refs of the same heads. last: shared by snapshots of any refs.
    untrimmed_max: overlays up to this number of samples are not trimmed. The range is not empty: the check of a spec
    refuses that.
    """
    parts = [head.contents for head in heads]
    taken = []
    try:
        for part in parts:
            part.lock.acquire()
            taken.append(part.lock)
        now, held = (last or HeadsSnapshotCache()).locked(parts), [part.held for part in parts]
        details = (
            [part.details.view_locked() for part in parts] if any(part.details.is_used for part in parts) else None
        )
        capture = UnsealedCapture.locked(now.point, refs.refs, refs.ends, start_ms, end_ms, before)
    finally:
        for lock in taken:
            lock.release()
    unsealed = capture.cache()
    is_small = unsealed.raw.samples <= untrimmed_max
    overlay = unsealed.raw if is_small else unsealed.within(start_ms, end_ms)
    return SeriesSnapshot(now.states, held, overlay, unsealed, details)


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


@dataclass(frozen=True, slots=True)
class CapturePoint:
    """Rows of several heads' open slices and late lists at one moment.

    taken_out (heads,) int64: see Contents. open: rows of all open slices, those of head i in
    [open_ends[i], open_ends[i + 1]). late (heads, LATE_COLUMNS). In an older point only starts and counts are valid:
    the addresses may have changed.
    """

    taken_out: NDArray[np.int64]
    open: Rows
    open_ends: NDArray[np.int64]
    late: Rows

    @classmethod
    def locked(cls, parts: Sequence[Contents]) -> CapturePoint:
        """The capture point now. The caller holds all locks."""
        open_rows = [part.open.rows[: part.open.count] for part in parts]
        return cls(
            np.array([part.taken_out for part in parts], np.int64),
            np.concatenate((*open_rows, np.empty((0, OPEN_COLUMNS), np.int64))),
            ends_of(open_rows),
            np.array([part.late.row for part in parts], np.int64).reshape(len(parts), LATE_COLUMNS),
        )

    def without_future(self) -> CapturePoint:
        """The same point, from which no later capture can continue."""
        return replace(self, taken_out=np.full_like(self.taken_out, _GONE))

    def expected(self, refs: int) -> int:
        """Estimated open samples of `refs` series, from the average series."""
        series = int(self.open[:, OPEN_LAST_SIZE].max(initial=1)) * max(1, len(self.taken_out))
        return refs * int(self.open[:, OPEN_COUNT].sum()) // series


@dataclass(frozen=True, slots=True, eq=False)
class UnsealedCache:
    """Tidy samples of n series, series i in [starts[i], starts[i + 1]).

    They are all open and late samples at `point`; after `without_future`, only those of one range. first_ms, last_ms:
    bounds of all samples, both inclusive.
    """

    point: CapturePoint
    starts: NDArray[np.int64]
    raw: RawResult
    first_ms: int
    last_ms: int

    @property
    def bytes(self) -> int:
        point = self.point
        rows = point.taken_out.nbytes + point.open.nbytes + point.open_ends.nbytes + point.late.nbytes
        return rows + self.starts.nbytes + self.raw.counts.nbytes + self.raw.payload_bytes

    def within(self, start_ms: int, end_ms: int) -> RawResult:
        """The samples of [start_ms, end_ms). Arrays may be shared."""
        raw = self.raw
        if start_ms <= self.first_ms and self.last_ms < end_ms:
            return raw
        counts, ts_ms, values = np.empty_like(raw.counts), np.empty_like(raw.ts_ms), np.empty_like(raw.values)
        total = clip_kernel(self.starts, raw.ts_ms, raw.values, start_ms, end_ms, counts, ts_ms, values)
        return RawResult(counts, ts_ms[:total], values[:total])


@dataclass(frozen=True, slots=True)
class UnsealedCapture:
    """A copy made under the locks, not tidy yet. before: the earlier cache, if nothing was appended since."""

    before: UnsealedCache | None
    point: CapturePoint
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def locked(
        cls,
        point: CapturePoint,
        refs: NDArray[np.uint32],
        ref_ends: NDArray[np.int64],
        start_ms: int,
        end_ms: int,
        before: UnsealedCache | None,
    ) -> UnsealedCapture:
        """Copy the samples appended since `before`, an earlier cache of the same refs of the same heads.

        The caller has held all locks since it took `point`. [start_ms, end_ms): the only range copied when there are
        more than SAMPLES_MAX samples.
        """
        if before is not None and before.point is point:  # Nothing has changed in any head.
            return cls(before, point, before.starts, before.raw.ts_ms, before.raw.values)
        heads = len(point.taken_out)
        starts = np.empty(len(refs) + 1, np.int64)
        whole = point.expected(len(refs)) <= SAMPLES_MAX
        capacity = len(refs) * COLLECT_PER_REF + (len(before.raw.ts_ms) if before and whole else 0)
        while True:
            old = before if before and whole else _nothing(heads, len(refs))
            goes_on = point.taken_out == old.point.taken_out
            ts_ms, values = np.empty(capacity, np.int64), np.empty(capacity, np.float64)
            total = collect_since_kernel(
                refs,
                ref_ends,
                *((_EVER_MS, _NEVER_MS) if whole else (start_ms, end_ms)),
                point.open,
                point.open_ends,
                point.late,
                goes_on,
                old.point.open,
                old.point.open_ends,
                old.point.late,
                old.starts,
                old.raw.ts_ms,
                old.raw.values,
                starts,
                ts_ms,
                values,
            )
            if total <= capacity:
                break
            whole, capacity = whole and total <= SAMPLES_MAX, total
        same = old is before and bool(goes_on.all()) and total == len(old.raw.ts_ms)
        return cls(before if same else None, point if whole else point.without_future(), starts, ts_ms, values)

    def cache(self) -> UnsealedCache:
        """The cache with all samples, tidy; the earlier cache, if there are no newer samples."""
        if self.before is not None:
            return self.before
        raw = compact(Runs(self.starts[:-1], self.starts[1:].copy(), self.ts_ms, self.values, NO_ORDERS).tidy())
        # Copied, because the arrays have capacity for many more samples.
        raw = RawResult(raw.counts, raw.ts_ms.copy(), raw.values.copy())
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(raw.counts, dtype=np.int64)))
        first_ms, last_ms = (int(raw.ts_ms.min()), int(raw.ts_ms.max())) if raw.samples else (0, 0)
        return UnsealedCache(self.point, starts, raw, first_ms, last_ms)


def ends_of(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.int64]:
    """The number 0, then the end of each part in the concatenation of all parts."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _nothing(heads: int, refs: int) -> UnsealedCache:
    """State before the first collection; heads never equal it."""
    point = CapturePoint(
        np.full(heads, _GONE, np.int64),
        np.empty((0, OPEN_COLUMNS), np.int64),
        np.zeros(heads + 1, np.int64),
        np.empty((heads, LATE_COLUMNS), np.int64),
    )
    empty = RawResult(np.zeros(refs, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64))
    return UnsealedCache(point, np.zeros(refs + 1, np.int64), empty, 0, 0)

"""Unsealed cache: keeps a reusable copy of the open and late samples of chosen series of several heads.

Open slices and late lists only grow, until entries are removed. Until then the next read of the same series copies only
the entries appended since. A fresh copy is slow, because a series' samples lie scattered among those of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import RawResult
from tsdb.head.read.gather import COLLECT_PER_REF, NO_ORDERS, Runs, compact
from tsdb.head.read.gather_many_kernels import clip_kernel, collect_since_kernel
from tsdb.head.slices.contents import Contents
from tsdb.head.slices.rows import LATE_COLUMNS, OPEN_COLUMNS, OPEN_COUNT, OPEN_LAST_SIZE, Rows

# 64 MiB. Above it only the requested range is copied, and no later read can reuse that copy.
SAMPLES_MAX = 4 << 20
_EVER_MS, _NEVER_MS = -(1 << 62), 1 << 62  # Before and after any time that a sample may have.
_GONE = -1  # A taken_out count that no head ever has, so that no read reuses this copy.


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
    """Before anything was collected: of heads that have since changed."""
    point = CapturePoint(
        np.full(heads, _GONE, np.int64),
        np.empty((0, OPEN_COLUMNS), np.int64),
        np.zeros(heads + 1, np.int64),
        np.empty((heads, LATE_COLUMNS), np.int64),
    )
    empty = RawResult(np.zeros(refs, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64))
    return UnsealedCache(point, np.zeros(refs + 1, np.int64), empty, 0, 0)

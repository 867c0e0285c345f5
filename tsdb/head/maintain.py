"""Maintenance: seals, merges, folds and drops slices, as the watermark of the log and the memory require.

Runs on the head's writer thread: new slices are made without the lock and inserted under it. Maintenance never changes
the answer of a covered read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.memory import HeadMemory
from tsdb.head.rebuild import fold_late, late_remains, merge_slices, seal_open
from tsdb.head.slices.contents import NEVER_MS, Contents
from tsdb.head.slices.late_list import grouped
from tsdb.head.slices.rows import CLOCK_OPEN_FROM, OPEN_END, OPEN_NEWEST_OFFSET
from tsdb.head.slices.sealed_slice import SealedSlice
from tsdb.head.state import Maintained
from tsdb.index.index import SeriesIndex
from tsdb.model.window import ceil_to, floor_to

MERGED_BYTES_MAX = 1 << 31  # Column ends are 32 bits wide; a merged slice stays far from that.
# An interval is folded when its late samples are this part of its slice: 1/2 while busy, 1/64 at rest.
FOLD_PART, FOLD_PART_AT_REST = 2, 64
FOLD_FROM_MS = -(1 << 60)  # Samples before this time stay in the list, because arithmetic on them would exceed 64 bits.
BELOW_GROWTH = 2  # A slice below coverage joins a fold of at least this part (1/2) of its size.
COMPACT_PART = 4  # The late list is rebuilt when more than this part (1/4) of it may leave.


class Maintenance:
    """Keeps the contents of one head in order. `index` gives the layout."""

    def __init__(self, contents: Contents, index: SeriesIndex, memory: HeadMemory, hold_ms: int) -> None:
        self._contents = contents
        self._index = index
        self._memory = memory
        self._hold_ms = hold_ms
        self._late_seen = 0
        self._fold_watermark_ms = NEVER_MS
        self._next_offset_seen = -1
        self._rested_at = -1  # next_offset at the last fold at rest. While it is unchanged, there is nothing to fold.

    @property
    def progress(self) -> tuple[int, int, int, int]:
        """The values that the next round needs."""
        return self._late_seen, self._fold_watermark_ms, self._next_offset_seen, self._rested_at

    @progress.setter
    def progress(self, progress: tuple[int, int, int, int]) -> None:
        self._late_seen, self._fold_watermark_ms, self._next_offset_seen, self._rested_at = progress

    def run(self) -> Maintained:
        """Run one round: seal, fold, merge and drop slices."""
        done = Maintained()
        self.seal_due(done)
        self._fold(done)
        self._merge(done)
        self._drop(done)
        self._contents.details.pack(self._contents.open_from_ms, self._contents.lock)
        return done

    def seal_due(self, done: Maintained) -> None:
        """Seal slices that take no more samples; above the soft memory limit also those that ended by the watermark."""
        contents = self._contents
        if contents.watermark_ms is not None and self._memory.over_soft > 0:
            with contents.lock:
                past_ms = floor_to(contents.watermark_ms, contents.slices.small_ms)
                contents.clock[CLOCK_OPEN_FROM] = max(contents.open_from_ms, past_ms)
        while contents.open.count and contents.open.start_ms(0) < contents.open_from_ms:
            sealed = seal_open(self._index, contents.open, 0)
            with contents.lock:
                if sealed is not None:
                    contents.add_sealed_locked(sealed)
                    done.sealed += 1
                contents.open.close(0)

    def drop_before_locked(self, start_ms: int, since_offset: int | None = None) -> None:
        """Drop every slice that starts before start_ms; raise coverage at least to start_ms, and since_offset."""
        contents = self._contents
        gone = tuple(slice_ for slice_ in contents.sealed if slice_.start_ms < start_ms)
        coverage_ms = ceil_to(start_ms, contents.slices.small_ms)
        since = contents.since_offset if since_offset is None else max(contents.since_offset, since_offset)
        while contents.open.count and contents.open.start_ms(0) < start_ms:
            row = contents.open.rows[0]
            coverage_ms, since = max(coverage_ms, int(row[OPEN_END])), max(since, int(row[OPEN_NEWEST_OFFSET]) + 1)
            contents.open.close(0)
        self._drop_slices(gone, coverage_ms, since)

    # Folding.

    def _fold(self, done: Maintained) -> None:
        """Move late samples from the list into the slices of their times, for intervals that have enough of them."""
        contents = self._contents
        at_rest = self._at_rest()
        self._late_seen = min(self._late_seen, contents.late.count)
        limits = contents.limits
        due = at_rest or contents.late.count - self._late_seen > limits.fold_step
        if contents.late.count < limits.fold_entries_min or not due:
            return
        if at_rest:
            self._rested_at = contents.next_offset
        self._fold_watermark_ms = contents.watermark_ms or NEVER_MS
        folded = np.zeros(contents.late.count, np.bool_)
        for interval in self._late_intervals():
            size = sum(slice_.samples for slice_ in interval.slices) if interval.covered else 0
            part = size // (FOLD_PART_AT_REST if at_rest else FOLD_PART)
            if len(interval.entries) < max(limits.fold_entries_min, part):
                continue
            self._fold_interval(interval)
            folded[interval.entries] = True
        done.folded += int(folded.sum())
        if done.folded:
            with contents.lock:
                contents.late.keep(~folded)
        self._late_seen = contents.late.count

    def _at_rest(self) -> bool:
        """Whether nothing was applied since the last round, or the watermark rose a slice's length without a fold.

        False until something is applied after a fold at rest.
        """
        contents = self._contents
        if contents.next_offset == self._rested_at:
            return False
        quiet = contents.next_offset == self._next_offset_seen
        self._next_offset_seen = contents.next_offset
        watermark = contents.watermark_ms
        return quiet or (watermark is not None and watermark >= self._fold_watermark_ms + contents.slices.small_ms)

    def _late_intervals(self) -> list[_Interval]:
        contents = self._contents
        coverage, small = contents.coverage_start_ms, contents.slices.small_ms
        ts = np.maximum(contents.late.ts_ms, 2 * FOLD_FROM_MS)
        starts = np.array([slice_.start_ms for slice_ in contents.sealed], np.int64)
        ends = np.array([slice_.end_ms for slice_ in contents.sealed], np.int64)
        keys = np.where(ts < coverage, ts - ts % contents.slices.large_ms, ts - ts % small)
        if len(starts):
            holder = np.searchsorted(starts, ts, side="right") - 1
            covered = (ts >= coverage) & (holder >= 0) & (ts < ends[np.maximum(holder, 0)])
            keys[covered] = starts[holder[covered]]
        # Entries come in stretches of one interval, so few of their keys need sorting.
        above = ts >= coverage
        change = np.flatnonzero((keys[1:] != keys[:-1]) | (above[1:] != above[:-1])) + 1
        first = np.concatenate([np.zeros(1, np.int64), change])
        _, which, interval_of = np.unique(2 * keys[first] + above[first], return_index=True, return_inverse=True)
        lengths = np.diff(np.append(first, len(ts)))
        edges, order = grouped(np.repeat(interval_of.astype(np.int64), lengths), len(which))
        by_start = {slice_.start_ms: slice_ for slice_ in contents.sealed}
        intervals: list[_Interval] = []
        for entries in np.split(order, edges[1:-1]):
            start_ms, covered_ = int(keys[entries[0]]), bool(above[entries[0]])
            if start_ms < FOLD_FROM_MS:
                continue
            if not covered_:
                end_ms = start_ms + contents.slices.large_ms
                into = self._below_to_join(start_ms, end_ms, len(entries))
            elif start_ms in by_start:
                end_ms, into = by_start[start_ms].end_ms, (by_start[start_ms],)
            else:
                end_ms, into = start_ms + small, ()
            intervals.append(_Interval(start_ms, end_ms, covered_, into, entries))
        return intervals

    def _below_to_join(self, start_ms: int, end_ms: int, samples: int) -> tuple[SealedSlice, ...]:
        """The newest slices of this interval below coverage, up to the first that is much larger than its newcomers.

        This keeps slices few, and a sample is rewritten few times. Older slices may not be skipped, because a later
        slice wins over an earlier one.
        """
        joined: list[SealedSlice] = []
        for slice_ in reversed(self._contents.below):
            if (slice_.start_ms, slice_.end_ms) != (start_ms, end_ms):
                continue
            if slice_.samples > BELOW_GROWTH * samples:
                break
            joined.append(slice_)
            samples += slice_.samples
        return tuple(reversed(joined))

    def _fold_interval(self, interval: _Interval) -> None:
        contents = self._contents
        if interval.covered and interval.slices:
            newest = (interval.slices[0].newest_offset, interval.slices[0].newest_broker_ms)
        else:
            # No record came before this slice was sealed. Keep it as if one had come at the last possible moment.
            newest = (contents.since_offset - 1, interval.start_ms + 2 * contents.slices.small_ms)
        folded = fold_late(
            self._index,
            interval.slices,
            contents.late,
            interval.entries,
            interval.start_ms,
            interval.end_ms,
            newest,
        )
        with contents.lock:
            if interval.covered:
                contents.add_sealed_locked(folded, instead_of=interval.slices)
            else:
                joined = set(map(id, interval.slices))
                below = (slice_ for slice_ in contents.below if id(slice_) not in joined)
                contents.swap_locked(contents.sealed, (*below, folded))

    # Merging.

    def _merge(self, done: Maintained) -> None:
        """Merge the small slices of each past interval into one large slice."""
        contents = self._contents
        large, small = contents.slices.large_ms, contents.slices.small_ms
        groups: dict[int, list[SealedSlice]] = {}
        for slice_ in contents.sealed:
            groups.setdefault(floor_to(slice_.start_ms, large), []).append(slice_)
        for start_ms, group in groups.items():
            end_ms = start_ms + large
            size = sum(slice_.bytes for slice_ in group)
            if len(group) < 2 or end_ms > contents.open_from_ms or size > MERGED_BYTES_MAX:
                continue
            first_ms = min(group[0].start_ms, max(start_ms, floor_to(contents.coverage_start_ms, small)))
            merged = merge_slices(self._index, tuple(group), first_ms, end_ms, contents.since_offset)
            with contents.lock:
                contents.add_sealed_locked(merged, instead_of=tuple(group))
            done.merged += len(group)

    # Dropping.

    def _drop(self, done: Maintained) -> None:
        """Drop whole slices, oldest first, when their newest record is older than hold. Above the soft limit, drop them
        earlier."""
        contents = self._contents
        watermark = contents.watermark_ms
        if watermark is None:
            return
        over = self._memory.over_soft
        gone: list[SealedSlice] = []
        for slice_ in contents.sealed:
            if slice_.newest_broker_ms >= watermark - self._hold_ms and over <= 0:
                break
            gone.append(slice_)
            over -= slice_.bytes + contents.details.bytes_between(slice_.start_ms, slice_.end_ms)
        if gone:
            self._drop_slices(tuple(gone), gone[-1].end_ms, contents.since_offset)
            done.dropped += len(gone)

    def _drop_slices(self, gone: tuple[SealedSlice, ...], coverage_ms: int, since_offset: int) -> None:
        """Drop these oldest slices, but keep their late samples from records at or past since_offset."""
        contents = self._contents
        for slice_ in gone:
            coverage_ms, since_offset = max(coverage_ms, slice_.end_ms), max(since_offset, slice_.newest_offset + 1)
        remains = [late_remains(self._index, s, since_offset) for s in gone if s.order_max >= since_offset]
        below = (*contents.below, *(slice_ for slice_ in remains if slice_ is not None))
        dropped = set(map(id, gone))
        with contents.lock:
            contents.swap_locked(
                tuple(slice_ for slice_ in contents.sealed if id(slice_) not in dropped),
                tuple(slice_ for slice_ in below if slice_.order_max >= since_offset),
            )
            contents.raise_coverage_locked(coverage_ms, since_offset)
            late = contents.late
            wanted = (late.orders >= contents.since_offset) | (late.ts_ms >= contents.coverage_start_ms)
            if (late.count - int(wanted.sum())) * COMPACT_PART > late.count:
                late.keep(wanted)


@dataclass(frozen=True, slots=True)
class _Interval:
    """Entries of the late list (indexes, ascending) that belong to one slice. covered: whether they are at or above
    coverage."""

    start_ms: int
    end_ms: int
    covered: bool
    slices: tuple[SealedSlice, ...]
    entries: NDArray[np.int64]

"""Apply: makes decoded records visible in a head's contents. Called by the writer thread only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.exemplar_record import DecodedExemplars
from tsdb.codec.records.log_record import STATUS_UNKNOWN_VERSION, DecodedRecords
from tsdb.head.exemplars import HeadExemplars, count_unknown
from tsdb.head.holes import corrupt_holes, unknown_holes
from tsdb.head.maintain import Maintenance
from tsdb.head.memory import HeadMemory
from tsdb.head.slices.contents import Contents
from tsdb.head.slices.rows import IGNORED_REF
from tsdb.head.state import Applied, Hole, Maintained
from tsdb.head.write.apply_kernels import (
    CURSOR_RECORD,
    CURSOR_WANTED,
    DONE,
    GROW_LATE,
    GROW_LATE_LAST,
    GROW_SLICE,
    GROW_SLICE_LAST,
    IMPORT_TICK,
    NEED_SLICE,
    SEAL_FIRST,
    TALLY_UNKNOWN,
    append_kernel,
)
from tsdb.head.write.pack_cache import PackCache
from tsdb.index.index import SeriesIndex
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.errors import UnknownVersion
from tsdb.model.time_set import TimeSet

DAY_MS = 24 * 3600 * 1000
CHECK_SAMPLES = 65_536  # Samples between two memory checks, in addition to the batch itself: 2 MB of open slices.
OPEN_SPARE = 8  # Slices that may wait for sealing within one batch, in addition to those that take samples.


class Apply:
    """The write path of one head."""

    def __init__(
        self,
        contents: Contents,
        index: SeriesIndex,
        packs: PackCache,
        memory: HeadMemory,
        maintenance: Maintenance,
        exemplars: HeadExemplars,
        time_set: TimeSet,
        partition: int,
    ) -> None:
        self._contents = contents
        self._exemplars = exemplars
        self._index = index
        self._maintenance = maintenance
        self._time_set = time_set
        self._partition = partition
        self._packs = packs
        self._memory = memory
        self._open_max = time_set.ahead_ms // contents.slices.small_ms + 4 + OPEN_SPARE
        self._unchecked = CHECK_SAMPLES  # Samples since the last memory check that passed.
        self._resolved: tuple[DecodedRecords, NDArray[np.uint32]] | None = None

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Distinct unknown series ids, ascending. The refs that were found are kept for the apply that follows."""
        refs, unknown = self._resolve(records)
        if not unknown:
            self._resolved = (records, refs)
        found = [records.series_id[refs == NO_REF]] if unknown else []
        if records.exemplars is not None and self._exemplars.enabled:
            ids = records.exemplars.exemplars.series_id
            found.append(ids[self._index.table.find(ids) == NO_REF])
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """See Head.apply for the contract."""
        self._unchecked += len(records.series_id)
        if self._unchecked > CHECK_SAMPLES:
            self._memory.check_samples()
            self._unchecked = 0
        if not records.all_ok:
            self._check_versions(records, offsets)
        refs = self._refs_of(records)
        first = int(offsets.searchsorted(self._contents.next_offset))
        batch = _Batch(records, refs, offsets, broker_ms, first)
        while batch.cursor[CURSOR_RECORD] < len(offsets):
            with self._contents.lock:
                self._contents.change_locked()
                finished = self._append_locked(batch)
                self._publish_locked(batch)
            if not finished:
                self._maintenance.seal_due(Maintained())
        applied = batch.applied
        if records.exemplars is not None and self._exemplars.enabled:
            applied.exemplars = self._add_exemplars(records.exemplars, first)
        return applied

    def _add_exemplars(self, found: DecodedExemplars, first: int) -> int:
        """Keep the exemplars of known series, of records from `first` on. Returns their number."""
        ids = found.exemplars.series_id
        fresh = found.record >= first
        known = fresh & (self._index.table.find(ids) != NO_REF)
        count = int(known.sum())
        if count:
            self._exemplars.add(found.exemplars.take(np.flatnonzero(known)))
        count_unknown(int(fresh.sum()) - count)
        return count

    def _check_versions(self, records: DecodedRecords, offsets: NDArray[np.int64]) -> None:
        unknown = np.flatnonzero(records.status == STATUS_UNKNOWN_VERSION)
        if len(unknown):
            raise UnknownVersion(
                f"record of an unknown version; partition {self._partition}, record_offset {offsets[unknown[0]]}"
            )

    def _resolve(self, records: DecodedRecords) -> tuple[NDArray[np.uint32], int]:
        keys, refs = self._index.table.arrays
        return self._packs.resolve(records, keys, refs, self._index.id_of_ref)

    def _refs_of(self, records: DecodedRecords) -> NDArray[np.uint32]:
        if self._resolved is not None and self._resolved[0] is records:
            refs = self._resolved[1]
        else:
            refs, _ = self._resolve(records)
        self._resolved = None
        return refs

    def _append_locked(self, batch: _Batch) -> bool:
        """Append records. True: the batch is done. False: stopped before a record, because slices must be sealed."""
        contents = self._contents
        while True:
            need = append_kernel(
                batch.records.flags,
                batch.records.sample_start,
                batch.offsets,
                batch.broker_ms,
                batch.refs,
                batch.records.ts_ms,
                batch.records.value,
                contents.open.rows,
                contents.open.count,
                self._open_max,
                contents.late.row,
                contents.slices.small_ms,
                self._time_set.ahead_ms,
                contents.clock,
                batch.tally,
                batch.cursor,
            )
            if need in (DONE, SEAL_FIRST):
                return bool(need == DONE)
            self._provide_locked(need, batch)

    def _provide_locked(self, need: int, batch: _Batch) -> None:
        contents, wanted = self._contents, int(batch.cursor[CURSOR_WANTED])
        if need == NEED_SLICE:
            contents.open.open(wanted, self._index.refs_size)
        elif need == GROW_SLICE:
            contents.open.grow(wanted)
        elif need == GROW_SLICE_LAST:
            contents.open.grow_last(wanted, self._index.refs_size)
        elif need == GROW_LATE:
            contents.late.grow()
        elif need == GROW_LATE_LAST:
            contents.late.grow_last(self._index.refs_size)
        else:
            assert need == IMPORT_TICK, f"append wants {need}"
            tick_ms = int(batch.broker_ms[batch.cursor[CURSOR_RECORD] - 1])
            self._maintenance.drop_before_locked(tick_ms - self._time_set.least_hold_ms - DAY_MS)

    def _publish_locked(self, batch: _Batch) -> None:
        """Make the records appended since the last call visible, and move applied_offset to the last of them."""
        contents = self._contents
        end = int(batch.cursor[CURSOR_RECORD])
        if end == batch.published:
            return
        records, first = batch.records, batch.published
        offsets = batch.offsets[first:end]
        contents.ring.append(
            contents.next_offset,
            offsets,
            records.sample_start[first : end + 1],
            batch.refs,
            records.ts_ms,
            records.value,
            records.details,
        )
        if records.details is not None or contents.details.is_used:
            self._add_details_locked(batch, offsets, end)
        contents.applied_offset = int(offsets[-1])
        contents.next_offset = contents.applied_offset + 1
        holes = batch.holes(end, self._time_set)
        contents.holes.add(holes)
        batch.publish(end, len(holes))

    def _add_details_locked(self, batch: _Batch, offsets: NDArray[np.int64], end: int) -> None:
        """Keep the details of the records [published, end), whose offsets are given."""
        records = batch.records
        starts = records.sample_start[batch.published : end + 1]
        first = int(starts[0])
        rows = np.flatnonzero(batch.refs[first : int(starts[-1])] < IGNORED_REF)  # The others are not visible.
        orders = np.repeat(offsets, np.diff(starts))[rows]
        rows += first
        details = records.details and records.details.take(rows)
        columns = batch.refs[rows], records.ts_ms[rows], records.value[rows]
        self._contents.details.add_locked(*columns, orders, details)


class _Batch:
    """One apply in progress: the kernel's cursor and tally, and the end of the visible records."""

    def __init__(
        self,
        records: DecodedRecords,
        refs: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        broker_ms: NDArray[np.int64],
        first: int,
    ) -> None:
        self.records = records
        self.refs = refs
        self.offsets = offsets
        self.broker_ms = broker_ms
        self.cursor = np.array([first, records.sample_start[first], 0], np.int64)
        self.tally = np.zeros(3, np.int64)
        self.published = first
        self._first = first
        self._holes = 0

    def holes(self, end: int, time_set: TimeSet) -> list[Hole]:
        """Holes of the records [published, end)."""
        first = self.published
        found = corrupt_holes(self.records, first, end, self.offsets, self.broker_ms, time_set)
        if self.tally[TALLY_UNKNOWN]:
            found += unknown_holes(self.records, first, end, self.refs, self.offsets)
        return found

    def publish(self, end: int, holes: int) -> None:
        """Count the records below `end` as visible."""
        self.published = end
        self._holes += holes

    @property
    def applied(self) -> Applied:
        """Counts over the records that are visible now."""
        starts, (late, ahead, unknown) = self.records.sample_start, map(int, self.tally)
        return Applied(
            records=self.published - self._first,
            samples=int(starts[self.published] - starts[self._first]) - ahead - unknown,
            late=late,
            ignored_ahead=ahead,
            unknown_samples=unknown,
            holes=self._holes,
        )

"""Rebuild: makes the base of one window from a stretch of the log, without a group, for engines that read by offsets.

It gives the same chunks as ChunkStage, byte for byte, from the records of [lookup of (window start - ahead), D). A
window that is too large for memory is made in parts, each from a read of all these records: a part has the packs whose
ids lie in one range, so parts in the order of their ranges give the chunks in the same order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.batches import with_samples, without_import_ticks
from tsdb.chunks.heads import stretch_head
from tsdb.chunks.records import ChunkRecord, window_record
from tsdb.chunks.window import ClosedWindow
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.codec.chunk.marker import WindowMarker
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied
from tsdb.head.memory import HeadMemory
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.time_set import SliceLengths, TimeSet

# A window's samples stay open, 28 bytes each, until the head has this size. Sealing and decoding them takes a fifth of
# a rebuild's CPU: 270 ns a sample with it, 210 without.
OPEN_BYTES_MAX = 256 << 20
OPEN_SLICES = 10  # Slices of a window. A head may have some more before it must seal.


@dataclass(frozen=True, slots=True)
class PackRange:
    """Packs with ids in [first, end)."""

    first: int
    end: int

    def split(self, parts: int) -> list[PackRange]:
        """This range as `parts` ranges of equal length, in order. Ids are hashes, so all have similar numbers of
        packs."""
        cuts = [self.first + self.length * part // parts for part in range(parts + 1)]
        return [PackRange(first, end) for first, end in pairwise(cuts)]

    @property
    def length(self) -> int:
        """Number of ids in the range."""
        return self.end - self.first


ALL_PACKS = PackRange(0, 1 << 64)


class WindowRebuild:
    """One (partition, window), or the packs of a range in it. Pass the announcements, then the records, in order; then
    take `records`.

    open_bytes_max: bytes of the head above which slices are sealed. sample_bytes_max: bytes of samples above which the
    rebuild is full and takes no further records; None: no limit.
    """

    def __init__(
        self,
        partition: int,
        start_ms: int,
        *,
        times: TimeSet,
        part_bytes_max: int = PART_BYTES_MAX,
        open_bytes_max: int = OPEN_BYTES_MAX,
        packs: PackRange = ALL_PACKS,
        sample_bytes_max: int | None = None,
    ) -> None:
        self.packs = packs
        self.full_at: int | None = None
        """Offset of the record at which the rebuild became full; None: it is not full."""
        self._start_ms = start_ms
        self._times = times
        self._part_bytes_max = part_bytes_max
        self._open_bytes_max = open_bytes_max
        self._sample_bytes_max = sample_bytes_max
        slices = SliceLengths(times.window_ms // OPEN_SLICES, times.window_ms // 2)
        self.head = stretch_head(partition, start_ms, slices, times)

    @property
    def memory(self) -> HeadMemory:
        """Memory of the rebuild's head."""
        return self.head.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """Register announced series in the rebuild's head, as Head.register."""
        self.head.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Implements Head.unknown_ids. Samples whose ids are unknown after `series` was read become holes, not
        chunks."""
        return self.head.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Take records with offsets below D. A full rebuild drops them."""
        if self.full_at is not None:
            return Applied(len(offsets))
        inside = (records.ts_ms >= self._start_ms) & (records.ts_ms < self._start_ms + self._times.window_ms)
        if self.packs != ALL_PACKS:
            inside &= self._in_packs(records.series_id)
        # In most batches all samples are inside. A copy would then take longer than the decoding.
        wanted = records if inside.all() else with_samples(records, inside)
        applied = self.head.apply(without_import_ticks(wanted), offsets, broker_ms)
        if self.memory.bytes > self._open_bytes_max:
            self.head.maintain()
        if self._sample_bytes_max is not None and self._sample_bytes > self._sample_bytes_max:
            self.full_at = int(offsets[-1])
        return applied

    def records(self, decision_offset: int) -> Iterator[ChunkRecord]:
        """The base chunks, then the window's marker."""
        marker = yield from self.chunks(decision_offset)
        yield window_record(self._start_ms, marker)

    def chunks(self, decision_offset: int) -> Generator[ChunkRecord, None, WindowMarker]:
        """The base chunks. Returns the marker that the window has if these are all of its packs."""
        assert self.full_at is None, "a full rebuild lacks records"
        window = ClosedWindow(self.head, self._start_ms, decision_offset, self._times, self._part_bytes_max)
        while not window.finished:
            base = window.records(window.within_bounds())
            yield from base.records
            window.emitted(base)
        return window.marker

    def _in_packs(self, series_id: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether each series is of a pack in the range, as its announcement says; False for unannounced series."""
        refs = self.head.index.table.find(series_id)
        inside: NDArray[np.bool_] = refs != NO_REF
        packs = self.head.index.pack_of_ref[refs[inside]]
        inside[inside] = (packs >= np.uint64(self.packs.first)) & (packs <= np.uint64(self.packs.end - 1))
        return inside

    @property
    def _sample_bytes(self) -> int:
        return self.memory.bytes - self.head.index.bytes()

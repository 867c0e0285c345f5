"""Rebuild: makes the base of one window from a stretch of the log, without a group, for engines that read by offsets.

It gives the same chunks as ChunkStage, byte for byte, from the records of [lookup of (window start - ahead), D).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.batches import with_samples, without_import_ticks
from tsdb.chunks.heads import stretch_head
from tsdb.chunks.records import ChunkRecord, window_record
from tsdb.chunks.window import ClosedWindow
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied
from tsdb.head.memory import HeadMemory
from tsdb.model.time_set import SliceLengths, TimeSet

# A window's samples stay open, 28 bytes each, until the head has this size. Sealing and decoding them takes a fifth of
# a rebuild's CPU: 270 ns a sample with it, 210 without.
OPEN_BYTES_MAX = 256 << 20
OPEN_SLICES = 10  # Slices of a window. A head may have some more before it must seal.


class WindowRebuild:
    """One (partition, window). Pass the announcements, then the records, in order; then take `records`.

    open_bytes_max: bytes of the head above which slices are sealed.
    """

    def __init__(
        self,
        partition: int,
        start_ms: int,
        *,
        times: TimeSet,
        part_bytes_max: int = PART_BYTES_MAX,
        open_bytes_max: int = OPEN_BYTES_MAX,
    ) -> None:
        self._start_ms = start_ms
        self._times = times
        self._part_bytes_max = part_bytes_max
        self._open_bytes_max = open_bytes_max
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
        """Take records with offsets below D."""
        inside = (records.ts_ms >= self._start_ms) & (records.ts_ms < self._start_ms + self._times.window_ms)
        # In most batches all samples are inside. A copy would then take longer than the decoding.
        wanted = records if inside.all() else with_samples(records, inside)
        applied = self.head.apply(without_import_ticks(wanted), offsets, broker_ms)
        if self.memory.bytes > self._open_bytes_max:
            self.head.maintain()
        return applied

    def records(self, decision_offset: int) -> Iterator[ChunkRecord]:
        """The base chunks, then the window's marker."""
        window = ClosedWindow(self.head, self._start_ms, decision_offset, self._times, self._part_bytes_max)
        while not window.finished:
            base = window.records(window.within_bounds())
            yield from base.records
            window.emitted(base)
        yield window_record(self._start_ms, window.marker)

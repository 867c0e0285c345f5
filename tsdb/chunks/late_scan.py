"""Late scan: finds the late minutes of one stretch of the log, without a group, for engines that read by offsets.

It gives the same late chunks and holes as ChunkStage, byte for byte, from the records of [first_offset, end_offset).
Both offsets are first offsets of late minutes. The watermark alone decides which samples are late, and the watermark of
the first record of a late minute equals that record's broker time. So a scan may begin with any minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.batches import record_of
from tsdb.chunks.heads import stretch_head
from tsdb.chunks.late_minute import LateSamples
from tsdb.chunks.late_minutes import LateMinutes
from tsdb.chunks.losses import corrupt_losses, unknown_losses
from tsdb.chunks.records import ChunkRecord, hole_record, late_records
from tsdb.chunks.stage import NEVER_MS
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied, Head
from tsdb.head.memory import HeadMemory
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.time_set import SliceLengths, TimeSet


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows that start in [start_ms, end_ms)."""

    start_ms: int
    end_ms: int


ALL_WINDOWS = Windows(-(1 << 62), 1 << 62)


class LateScan:
    """One stretch of one partition. Pass the announcements, then the records, in order. Take `records` any number of
    times, and once more after `end`.

    windows: only late samples of these windows are collected, and no holes, because a hole belongs to no window. head:
    a head whose index gets the announcements; the caller may register them there for another purpose. None creates a
    head.
    """

    def __init__(
        self,
        partition: int,
        first_offset: int,
        *,
        times: TimeSet,
        slices: SliceLengths,
        part_bytes_max: int = PART_BYTES_MAX,
        windows: Windows = ALL_WINDOWS,
        head: Head | None = None,
    ) -> None:
        self.partition = partition
        self.samples = 0
        """Late samples taken so far."""
        self._times = times
        self._part_bytes_max = part_bytes_max
        self._windows = windows
        self._watermark_ms = NEVER_MS
        self._late = LateMinutes(first_offset, times.late_minute_ms, NEVER_MS)
        self._holes: list[ChunkRecord] = []
        # The head serves only its index here; it gets no samples.
        self._head = stretch_head(partition, 0, slices, times) if head is None else head

    @property
    def memory(self) -> HeadMemory:
        """Memory of the scan's head."""
        return self._head.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """Register announced series in the scan's head, as Head.register."""
        self._head.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Implements Head.unknown_ids. Samples whose ids are unknown after `series` was read become holes, not
        chunks."""
        return self._head.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Take at least one record."""
        watermarks = np.maximum(np.maximum.accumulate(broker_ms), self._watermark_ms)
        late, refs = self._late_of(records, broker_ms, watermarks)
        losses = corrupt_losses(records, offsets, broker_ms, self._times, self.partition)
        if len(self._head.unknown_ids(records)):
            losses += unknown_losses(records, self._head, offsets, broker_ms, self._times, self.partition)
        if self._windows == ALL_WINDOWS:
            self._holes += map(hole_record, losses)
        record = record_of(records, late)
        samples = LateSamples(
            self._head.index.pack_of_ref[refs],
            records.series_id[late],
            records.ts_ms[late],
            records.value[late],
            offsets[record],
            None if records.details is None else records.details.take(late),
        )
        self._late.take(offsets, watermarks, record, samples)
        self._watermark_ms = int(watermarks[-1])
        self.samples += len(late)
        return Applied(len(offsets), len(late), len(late), holes=len(losses))

    def end(self, end_offset: int) -> None:
        """End the scan: all records below end_offset were taken, and end_offset begins another minute."""
        self._late.end(end_offset)

    def records(self) -> Iterator[ChunkRecord]:
        """Holes, and chunks of ended minutes. Each record is returned once."""
        holes, self._holes = self._holes, []
        yield from holes
        while self._late.ended:
            minute = self._late.take_ended().minute
            yield from late_records(minute, window_ms=self._times.window_ms, part_bytes_max=self._part_bytes_max)

    @property
    def watermark_ms(self) -> int | None:
        """Watermark of the records so far; None before the first record."""
        return None if self._watermark_ms == NEVER_MS else self._watermark_ms

    @property
    def waits_until_ms(self) -> int | None:
        """Broker time that ends the current minute; None when the minute has no late samples."""
        return self._late.end_ms

    def _late_of(
        self, records: DecodedRecords, broker_ms: NDArray[np.int64], watermarks: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Late samples: of closed windows, of known series and not too far ahead. Returns their positions and refs."""
        closed_ms = watermarks - self._times.grace_ms
        closed_ms -= closed_ms % self._times.window_ms
        per_record = np.diff(records.sample_start)
        latest_ms = np.minimum(closed_ms - 1, broker_ms + self._times.ahead_ms)
        wanted = records.ts_ms <= np.repeat(latest_ms, per_record)
        if self._windows != ALL_WINDOWS:
            wanted &= (records.ts_ms >= self._windows.start_ms) & (records.ts_ms < self._windows.end_ms)
        late = np.flatnonzero(wanted)
        refs = self._head.index.table.find(records.series_id[late])
        return late[refs != NO_REF], refs[refs != NO_REF]

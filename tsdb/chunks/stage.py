"""Chunk stage of one partition: records in, in the order of the log; out come chunks and markers to be written.

What comes out depends on the log alone, however records are batched and wherever the stage was stopped and begun again;
the clock decides when. Samples of open windows go into a head. A window closes at its decision offset, the first record
whose broker time is at least its end + grace: from there on its samples are late and go to the late minute, so what the
head holds of a closed window stays as it is until it was emitted, and is dropped then.

One thread. `apply` takes records; `due` says what to write next and changes nothing; `finish` tells that it was.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.batches import part, record_of, with_samples, without_import_ticks
from tsdb.chunks.heads import OUT_OF_REACH_MS
from tsdb.chunks.late_minute import LateSamples
from tsdb.chunks.late_minutes import LateMinutes
from tsdb.chunks.losses import corrupt_losses, unknown_losses
from tsdb.chunks.progress import Progress
from tsdb.chunks.records import ChunkRecord, hole_record, late_records, window_record
from tsdb.chunks.window import BaseRecords, ClosedWindow
from tsdb.codec.chunk import PART_BYTES_MAX
from tsdb.codec.log_record import DecodedRecords
from tsdb.codec.series_record import DecodedAnnouncements
from tsdb.head.head import Applied, Head, Maintained
from tsdb.head.limits import HeadLimits
from tsdb.head.memory import HeadMemory
from tsdb.head.rows import NO_REF
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import SliceLengths, TimeSet

NEVER_MS = int(np.iinfo(np.int64).min)
MINUTES_MAX, WINDOWS_MAX = 64, 256  # Finished late minutes and empty windows that are written at a time.


@dataclass(frozen=True, slots=True)
class Emission:
    """What is to be written: `records` first, and once they are all acknowledged, when there is `progress`: `markers`,
    and once those are, the progress marker and the commit.

    It is one of: holes, so many; late minutes; the base of some packs; finished windows, so many, of which some were
    empty and some not_whole, which have no marker. samples: in the records.
    """

    records: list[ChunkRecord]
    markers: list[ChunkRecord]
    progress: Progress | None
    samples: int = 0
    holes: int = 0
    minutes: int = 0
    base: BaseRecords | None = None
    windows: int = 0
    empty: int = 0
    not_whole: int = 0


class ChunkStage:
    """The stage of one partition, from `progress` on; `next_offset` is the first record that it is given.

    limits: memory_hard_bytes bounds the head (Overloaded, memory_hard); the soft limit is ignored, for nothing may go
    before it was emitted. Raises ConfigMismatch (slice_lengths) when slices do not divide the window.
    """

    def __init__(
        self,
        partition: int,
        progress: Progress,
        next_offset: int,
        *,
        times: TimeSet,
        slices: SliceLengths,
        limits: HeadLimits | None = None,
        part_bytes_max: int = PART_BYTES_MAX,
    ) -> None:
        if times.window_ms % slices.large_ms:
            raise ConfigMismatch(
                f"slices of {slices.large_ms} ms do not divide the window of {times.window_ms} ms",
                reason="slice_lengths",
            )
        self.partition = partition
        self.head = Head(
            partition,
            slices=slices,
            time_set=times,
            hold_ms=OUT_OF_REACH_MS,
            coverage_start_ms=progress.emitted_through_ms,
            since_offset=next_offset,
            from_start=False,
            limits=replace(limits or HeadLimits(), memory_soft_bytes=1 << 62, ring_samples_max=1),
        )
        self._times = times
        self._part_bytes_max = part_bytes_max
        self._start = progress
        self._next_offset = next_offset
        self._watermark_ms = NEVER_MS
        self._closed_through_ms = progress.emitted_through_ms
        self._emitted_through_ms = progress.emitted_through_ms
        self._late = LateMinutes(next_offset, times.late_minute_ms, NEVER_MS)
        self._closed: deque[ClosedWindow] = deque()
        self._holes: list[ChunkRecord] = []

    # Records.

    @property
    def memory(self) -> HeadMemory:
        """Of its head."""
        return self.head.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """As Head.register."""
        self.head.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """As Head.unknown_ids."""
        return self.head.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Take records. offsets ascend; those already taken are passed over. Raises Overloaded (memory_hard), then
        some of the records may have been taken."""
        done = Applied()
        first, end = int(np.searchsorted(offsets, self._next_offset)), len(offsets)
        if first < end:
            watermarks = np.maximum(np.maximum.accumulate(broker_ms), self._watermark_ms)
        while first < end:
            self._close_windows(int(offsets[first]), int(watermarks[first]))
            # At least one: what is left to close lies beyond the watermark of this record.
            last = first + int(np.searchsorted(watermarks[first:end], self._next_close_ms))
            self._take(
                part(records, first, last), offsets[first:last], broker_ms[first:last], watermarks[first:last], done
            )
            first = last
        return done

    def maintain(self) -> Maintained:
        """As Head.maintain; nothing is dropped."""
        return self.head.maintain()

    # What is to be written.

    def due(self, now_ms: int) -> Emission | None:
        """What to write now; None when there is nothing. The same again until `finish`."""
        if self._holes:
            return Emission(list(self._holes), [], None, holes=len(self._holes))
        if self._late.ended:
            return self._due_minutes()
        return self._due_windows(now_ms) if self._closed else None

    def finish(self, emission: Emission) -> None:
        """What `due` gave last is on its way, or acknowledged where it has `progress`."""
        del self._holes[: emission.holes]
        for _ in range(emission.minutes):
            self._late.take_ended()
        if emission.base is not None:
            self._closed[0].emitted(emission.base)
        for _ in range(emission.windows):
            window = self._closed.popleft()
            self._emitted_through_ms = window.end_ms
            self.head.drop_before(window.end_ms, window.decision_offset)

    @property
    def progress(self) -> Progress:
        """What is emitted once everything that `finish` was told of is acknowledged."""
        position = max(self._start.position, self._late.position)
        return replace(self._start, position=position, emitted_through_ms=self._emitted_through_ms)

    @property
    def tick_due_ms(self) -> int:
        """Broker time that something waits for: the end of a window or of a minute holding late samples."""
        minute_end_ms = self._late.end_ms
        return self._next_close_ms if minute_end_ms is None else min(self._next_close_ms, minute_end_ms)

    @property
    def windows_waiting(self) -> int:
        """Closed windows that are not finished."""
        return len(self._closed)

    @property
    def late_waiting(self) -> int:
        """Late samples that are not emitted."""
        return self._late.samples

    # Parts of apply.

    @property
    def _next_close_ms(self) -> int:
        return self._closed_through_ms + self._times.window_ms + self._times.grace_ms

    def _close_windows(self, offset: int, watermark_ms: int) -> None:
        while self._next_close_ms <= watermark_ms:
            self._closed.append(
                ClosedWindow(self.head, self._closed_through_ms, offset, self._times, self._part_bytes_max)
            )
            self._closed_through_ms += self._times.window_ms

    def _take(
        self,
        records: DecodedRecords,
        offsets: NDArray[np.int64],
        broker_ms: NDArray[np.int64],
        watermarks: NDArray[np.int64],
        done: Applied,
    ) -> None:
        """Take records between which no window closes."""
        is_late = records.ts_ms < self._closed_through_ms
        late = np.flatnonzero(is_late)
        rest = with_samples(records, ~is_late) if len(late) else records
        applied = self.head.apply(without_import_ticks(rest), offsets, broker_ms)
        # From here on nothing fails: a batch given again after Overloaded finds all of this done, or none.
        late, refs = self._late_wanted(records, late, offsets, broker_ms, watermarks)
        losses = corrupt_losses(records, offsets, broker_ms, self._times, self.partition)
        unknown = applied.unknown_samples + int((refs == NO_REF).sum())
        if unknown:
            losses += unknown_losses(records, self.head, offsets, broker_ms, self._times, self.partition)
            late, refs = late[refs != NO_REF], refs[refs != NO_REF]
        self._holes += map(hole_record, losses)
        record = record_of(records, late)
        self._late.take(offsets, watermarks, record, self._late_samples(records, late, refs, offsets[record]))
        self._watermark_ms = int(watermarks[-1])
        self._next_offset = int(offsets[-1]) + 1
        done.records += applied.records
        done.samples += applied.samples + len(late)
        done.late += len(late)
        done.ignored_ahead += applied.ignored_ahead
        done.unknown_samples += unknown
        done.holes += len(losses)

    def _late_wanted(
        self,
        records: DecodedRecords,
        late: NDArray[np.int64],
        offsets: NDArray[np.int64],
        broker_ms: NDArray[np.int64],
        watermarks: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Those of the late samples that were not emitted before and are not too far ahead, and their refs."""
        record = record_of(records, late)
        in_time = records.ts_ms[late] <= broker_ms[record] + self._times.ahead_ms
        # The position may lie before the decision offset of a window that is emitted, where that is in the middle of a
        # late minute: what is read again of such a window from before it closed is in its base.
        closed_ms = watermarks[record] - self._times.grace_ms
        closed = records.ts_ms[late] < closed_ms - closed_ms % self._times.window_ms
        late = late[in_time & closed & (offsets[record] >= self._start.position)]
        return late, self.head.index.table.find(records.series_id[late])

    def _late_samples(
        self, records: DecodedRecords, late: NDArray[np.int64], refs: NDArray[np.uint32], order: NDArray[np.int64]
    ) -> LateSamples:
        return LateSamples(
            self.head.index.pack_of_ref[refs],
            records.series_id[late],
            records.ts_ms[late],
            records.value[late],
            order,
        )

    # Emitting.

    def _due_minutes(self) -> Emission:
        ended = list(self._late.ended)[:MINUTES_MAX]
        records: list[ChunkRecord] = []
        for each in ended:
            records += late_records(each.minute, window_ms=self._times.window_ms, part_bytes_max=self._part_bytes_max)
        progress = replace(self.progress, position=max(self._start.position, ended[-1].next_offset))
        samples = sum(each.minute.samples for each in ended)
        return Emission(records, [], progress, samples=samples, minutes=len(ended))

    def _due_windows(self, now_ms: int) -> Emission | None:
        """Some packs of the first closed window, or, when it and maybe more have none left, their markers."""
        done = self._finished_windows()
        if done:
            whole = [window for window in done if window.start_ms >= self._start.whole_from_ms]
            return Emission(
                [],
                [window_record(window.start_ms, window.marker) for window in whole],
                replace(self.progress, emitted_through_ms=done[-1].end_ms),
                windows=len(done),
                empty=sum(not window.packs.count for window in whole),
                not_whole=len(done) - len(whole),
            )
        count = self._closed[0].due(now_ms)
        if count <= 0:
            return None
        base = self._closed[0].records(count)
        return Emission(base.records, [], None, samples=base.samples, base=base)

    def _finished_windows(self) -> list[ClosedWindow]:
        """The first of the closed windows, as many as have nothing left to emit."""
        done: list[ClosedWindow] = []
        for window in self._closed:
            if len(done) == WINDOWS_MAX or not (window.start_ms < self._start.whole_from_ms or window.finished):
                break
            done.append(window)
        return done

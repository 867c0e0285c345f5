"""Chunk stage of one partition: takes records in log order and returns the chunks and markers to write.

The output depends on the log alone, not on how records are batched or where the stage was stopped and started again.
The clock decides only when output is due. Samples of open windows go into a head. A window closes at its decision
offset, the first record whose broker time is at least its end + grace. From that offset on its samples are late and go
to the late minute. So the head's samples of a closed window do not change until they are emitted; then they are
dropped.

One thread. `apply` takes records; `due` returns the next output and changes nothing; `finish` confirms that output.
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
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied, Head, Maintained
from tsdb.head.memory import HeadMemory
from tsdb.head.state import HeadLimits
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import SliceLengths, TimeSet

NEVER_MS = int(np.iinfo(np.int64).min)
MINUTES_MAX, WINDOWS_MAX = 64, 256  # Ended late minutes and finished windows in one emission.


@dataclass(frozen=True, slots=True)
class Emission:
    """Output to write. Without `progress`: `records`. With `progress`: `records`, after their acknowledgement
    `markers`, and after theirs the progress marker and the commit.

    An emission has one kind. holes, minutes, windows: number of holes, late minutes or finished windows in it. base:
    whether it has base chunks of some packs. empty: number of windows without samples. not_whole: number of windows
    that were incomplete in the log and have no marker. samples: samples in the records.
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
    """The stage of one partition, from `progress` on. `next_offset`: the first record to apply.

    limits: memory_hard_bytes bounds the head (Overloaded, memory_hard). The soft limit is ignored: samples must not be
    dropped before they are emitted. Raises ConfigMismatch (slice_lengths) when slices do not divide the window.
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
            limits=replace(
                limits or HeadLimits(), memory_soft_bytes=1 << 62, ring_samples_max=1, exemplars_bytes_max=0
            ),
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

    # Input.

    @property
    def memory(self) -> HeadMemory:
        """Memory of the stage's head."""
        return self.head.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """Register announced series in the stage's head, as Head.register."""
        self.head.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Series ids of the records that the stage's head does not know, as Head.unknown_ids."""
        return self.head.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Take records. offsets: ascending; records taken before are skipped. Raises Overloaded (memory_hard); some of
        the records may have been taken then."""
        done = Applied()
        first, end = int(np.searchsorted(offsets, self._next_offset)), len(offsets)
        if first < end:
            watermarks = np.maximum(np.maximum.accumulate(broker_ms), self._watermark_ms)
        while first < end:
            self._close_windows(int(offsets[first]), int(watermarks[first]))
            # At least one record, because the next window closes only after this record's watermark.
            last = first + int(np.searchsorted(watermarks[first:end], self._next_close_ms))
            self._take(
                part(records, first, last), offsets[first:last], broker_ms[first:last], watermarks[first:last], done
            )
            first = last
        return done

    @property
    def next_offset(self) -> int:
        """The first record to apply."""
        return self._next_offset

    def maintain(self) -> Maintained:
        """Does what Head.maintain does, but drops nothing."""
        return self.head.maintain()

    # Output.

    def due(self, now_ms: int) -> Emission | None:
        """The next output; None when no output is due. Returns the same output again until `finish`."""
        if self._holes:
            return Emission(list(self._holes), [], None, holes=len(self._holes))
        if self._late.ended:
            return self._due_minutes()
        return self._due_windows(now_ms) if self._closed else None

    def next_due_ms(self) -> int | None:
        """When `due` has an output, if no record comes before; None: never. In the past where it has one now."""
        if self._holes or self._late.ended:
            return NEVER_MS
        return self._closed[0].next_due_ms() if self._closed else None

    def finish(self, emission: Emission) -> None:
        """Confirm the last output of `due`: its records are sent, or acknowledged when it has `progress`."""
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
        """The progress when all output confirmed with `finish` is acknowledged."""
        position = max(self._start.position, self._late.position)
        return replace(self._start, position=position, emitted_through_ms=self._emitted_through_ms)

    @property
    def tick_due_ms(self) -> int:
        """Broker time at which the next window closes or the current minute with late samples ends, whichever is
        first."""
        minute_end_ms = self._late.end_ms
        return self._next_close_ms if minute_end_ms is None else min(self._next_close_ms, minute_end_ms)

    @property
    def windows_waiting(self) -> int:
        """Number of closed windows that are not finished."""
        return len(self._closed)

    @property
    def late_waiting(self) -> int:
        """Number of late samples that are not emitted."""
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
        """Take records; no window closes between them."""
        is_late = records.ts_ms < self._closed_through_ms
        late = np.flatnonzero(is_late)
        rest = with_samples(records, ~is_late) if len(late) else records
        applied = self.head.apply(without_import_ticks(rest), offsets, broker_ms)
        # Nothing below fails, so for a batch that is repeated after Overloaded either all of this was done or nothing.
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
        """The late samples that were not emitted before and are not too far ahead, and their refs."""
        record = record_of(records, late)
        in_time = records.ts_ms[late] <= broker_ms[record] + self._times.ahead_ms
        # The position may lie before the decision offset of an emitted window, when that offset is in the middle of a
        # late minute. Samples of such a window from records before its decision offset are in its base already.
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
            None if records.details is None else records.details.take(late),
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
        """Markers of the first closed windows without packs that are left. When there is no such window, the due packs
        of the first one."""
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
        """The closed windows, from the first on, that have nothing left to emit."""
        done: list[ClosedWindow] = []
        for window in self._closed:
            if len(done) == WINDOWS_MAX or not (window.start_ms < self._start.whole_from_ms or window.finished):
                break
            done.append(window)
        return done

"""Reading: apply a range of offsets of one log partition to a target, announcements of series first."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from chunker.takeover import series_offset
from tsdb.chunks.batches import part
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, TsdbError, Unavailable, UnknownVersion
from tsdb.model.time_set import TimeSet
from tsdb.replay.replay import FreshStart, PartitionProgress, RecordTarget, Replay
from tsdb.replay.series_feed import LabelMemory, SeriesFeed

ALL_EPOCHS_MS = -(1 << 60)  # Records may refer to series announced in any epoch, however old.
POLL_S = 0.5
STEP_RECORDS = 5_000
SMALL_RECORDS = 5_000  # For a range this short the reader prefetches little: records past its end are thrown away.
SMALL_PREFETCH_BYTES = 1 << 20


def read_into(
    target: RecordTarget,
    log: Log,
    partition: int,
    first_offset: int,
    end_offset: int,
    times: TimeSet,
    clock: Clock,
    patience_s: float,
    step_records: int = STEP_RECORDS,
) -> Generator[None, None, None]:
    """Apply the records [first_offset, end_offset) to `target`. Yields after each step: the caller may empty it.

    step_records: most records in one step.

    Raises LostOffsets when the log no longer has the records, UnknownVersion, and Unavailable after patience_s without
    a new record.
    """
    if first_offset >= end_offset:
        return
    announced = series_offset(log, partition, first_offset, times, clock)
    until = _Until(target, end_offset)
    prefetch = SMALL_PREFETCH_BYTES if end_offset - first_offset <= SMALL_RECORDS else None
    progress = PartitionProgress(first_offset)
    replay = Replay(
        log.reader({(METRICS, partition): first_offset}, prefetch_bytes=prefetch),
        {partition: until},
        {partition: progress},
        SeriesFeed(log, {partition: until}, {partition: announced}, ALL_EPOCHS_MS),
        clock=clock,
        renew=lambda _: _lost(log, partition, first_offset),
    )
    try:
        moved_at, at = clock.monotonic(), first_offset
        while progress.next_offset < end_offset:
            replay.step(POLL_S, records_max=step_records)
            yield
            if progress.stopped:
                raise _stopped(progress)
            if progress.next_offset > at:
                moved_at, at = clock.monotonic(), progress.next_offset
            elif clock.monotonic() - moved_at > patience_s:
                raise _silent(partition, at, end_offset, patience_s, replay.waiting_for(partition))
    finally:
        replay.close()


class _Until:
    """A target that passes on records below `end_offset` and drops the rest."""

    def __init__(self, target: RecordTarget, end_offset: int) -> None:
        self._target = target
        self._end_offset = end_offset

    @property
    def memory(self) -> LabelMemory:
        return self._target.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        self._target.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        return self._target.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        last = int(np.searchsorted(offsets, self._end_offset))
        if not last:
            return Applied()
        return self._target.apply(part(records, 0, last), offsets[:last], broker_ms[:last])


def _lost(log: Log, partition: int, first_offset: int) -> FreshStart[_Until]:
    low = log.watermarks(METRICS, [partition])[partition].low
    raise LostOffsets(
        f"partition {partition}: records from offset {first_offset} on are needed; the log begins at {low}",
        reason="chunk_gap",
        partition=partition,
    )


def _stopped(progress: PartitionProgress) -> TsdbError:
    kind = Unavailable if progress.stopped == "broker_clock_ahead" else UnknownVersion
    return kind(progress.stopped_message, reason=progress.stopped)


def _silent(partition: int, at: int, end_offset: int, patience_s: float, waiting: TsdbError | None) -> Unavailable:
    why = f": {waiting.message}" if waiting else ""
    return Unavailable(
        f"partition {partition}: nothing came from offset {at} on for {patience_s:g} s, up to {end_offset} is"
        f" needed{why}",
        reason="log_unavailable",
    )

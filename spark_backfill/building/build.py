"""Build: the records of `chunks` for one work item. `tsdb.chunks` makes the bytes, as for the Python chunker.

One part reads the log once, for the base of a window and for the late minutes that end in it.

The records of a window's base include those of its late minutes, so a separate scan would read these twice. Both parts
see what they would see alone, and share the index of the window's head.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spark_backfill.building.items import BaseItem, Item, LateItem
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.reading import read_into
from tsdb.chunks.batches import part
from tsdb.chunks.late_scan import ALL_WINDOWS, LateScan, Windows
from tsdb.chunks.rebuild import WindowRebuild
from tsdb.chunks.records import ChunkRecord, hole_record
from tsdb.chunks.resume import holds_since, is_whole, trimmed_near
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied, Head
from tsdb.head.memory import HeadMemory
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import first_records
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet


def build(item: Item, log: Log, options: BuildOptions, clock: Clock) -> Iterator[ChunkRecord]:
    """All records of an item; the marker of a window comes after its chunks. Every run on every machine gives the same
    records.

    Raises LostOffsets (chunk_gap) when the log no longer has all records it needs, and as read_into.

    """
    if isinstance(item, LateItem):
        yield from _late(item, log, options, clock)
        return
    for start_ms in range(item.start_ms, item.end_ms, options.times.window_ms):
        yield from _base(item, start_ms, log, options, clock)


def decision_offset(log: Log, partition: int, window_end_ms: int, grace_ms: int) -> int | None:
    """D, the decision offset of the window that ends at `window_end_ms`; None while the window is open."""
    return log.offsets_for_times(METRICS, {partition: window_end_ms + grace_ms})[partition]


def _late(item: LateItem, log: Log, options: BuildOptions, clock: Clock) -> Iterator[ChunkRecord]:
    scan = _scan(item.partition, item.first_offset, options, item.windows)
    stretch = item.first_offset, item.end_offset, options.times, clock, options.patience_s
    for _ in read_into(scan, log, item.partition, *stretch):
        yield from scan.records()
    scan.end(item.end_offset)
    yield from scan.records()


def _base(item: BaseItem, start_ms: int, log: Log, options: BuildOptions, clock: Clock) -> Iterator[ChunkRecord]:
    partition, times = item.partition, options.times
    decision = decision_offset(log, partition, start_ms + times.window_ms, times.grace_ms)
    if decision is None:
        raise Unavailable(
            f"partition {partition}: the window of {start_ms} ms is not closed by the log", reason="window_open"
        )
    first, hole = _whole_from(log, item, start_ms, times)
    if hole is not None:
        yield hole_record(hole)
    made = WindowRebuild(partition, start_ms, times=times, part_bytes_max=options.part_bytes_max)
    scan = _scan(partition, item.late_first, options, head=made.head)
    both = WindowAndLate(made, scan, item.late_first, item.late_end)
    for _ in read_into(both, log, partition, first, decision, times, clock, options.patience_s):
        yield from scan.records()
    if item.late_first < item.late_end:
        assert first <= item.late_first < item.late_end <= decision, f"late minutes outside the window: {item}"
        scan.end(item.late_end)
        yield from scan.records()
    yield from made.records(decision)


def _scan(
    partition: int,
    first_offset: int,
    options: BuildOptions,
    windows: Windows = ALL_WINDOWS,
    head: Head | None = None,
) -> LateScan:
    return LateScan(
        partition,
        first_offset,
        times=options.times,
        slices=options.slices,
        part_bytes_max=options.part_bytes_max,
        windows=windows,
        head=head,
    )


def _whole_from(log: Log, item: BaseItem, start_ms: int, times: TimeSet) -> tuple[int, HoleRecord | None]:
    """First record that a window needs, and the hole that tsdb.chunks.resume.trimmed_near names. Raises LostOffsets
    (chunk_gap) when the log no longer has all its records."""
    partition, since_ms = item.partition, start_ms - times.ahead_ms
    first = log.offsets_for_times(METRICS, {partition: since_ms})[partition]
    assert first is not None, "there is one at D"
    low = log.watermarks(METRICS, [partition])[partition].low
    retained = first_records(log, METRICS, {partition: low} if low else {}).get(partition)
    retained_ms = retained.broker_ms if retained else None
    if item.again:
        needed_ms, enough = since_ms - times.ahead_ms, is_whole(start_ms, low, retained_ms, times)
    else:
        needed_ms, enough = since_ms, holds_since(since_ms, low, retained_ms)
    if not enough:
        raise LostOffsets(
            f"partition {partition}: the window of {start_ms} ms needs records from {needed_ms} ms on;"
            f" the log begins at offset {low}",
            reason="chunk_gap",
            partition=partition,
            low=low,
        )
    return first, trimmed_near(start_ms, low, retained_ms, partition, times)


class WindowAndLate:
    """A RecordTarget: all records go to `window`, those of [late_first, late_end) also to `scan`, which has the head of
    `window`."""

    def __init__(self, window: WindowRebuild, scan: LateScan, late_first: int, late_end: int) -> None:
        self._window = window
        self._scan = scan
        self._late = np.array([late_first, late_end], np.int64)

    @property
    def memory(self) -> HeadMemory:
        """Memory of the head that both share."""
        return self._window.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """Register announced series, once for both."""
        self._window.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Implements Head.unknown_ids for the head that both share."""
        return self._window.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Take records. The scan is first: the window's head may forget series after it has applied them."""
        first, end = np.searchsorted(offsets, self._late).tolist()
        if first < end:
            self._scan.apply(part(records, first, end), offsets[first:end], broker_ms[first:end])
        return self._window.apply(records, offsets, broker_ms)

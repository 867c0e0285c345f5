"""Build: the records of `chunks` for one work item. `tsdb.chunks` makes the bytes, as for the Python chunker.

It reads the log once, for the base of a window and for the late minutes that end in it. A window with more samples than
window_bytes_max is built in parts, each of a range of packs, and each part reads the log again.

The records of a window's base include those of its late minutes, so a separate scan would read these twice. Both parts
see what they would see alone, and share the index of the window's head.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from spark_backfill.building.items import BaseItem, Item, LateItem
from spark_backfill.building.options import BuildOptions
from spark_backfill.building.reading import read_into
from tsdb.chunks.batches import part
from tsdb.chunks.late_scan import ALL_WINDOWS, LateScan, Windows
from tsdb.chunks.rebuild import ALL_PACKS, PackRange, WindowRebuild
from tsdb.chunks.records import ChunkRecord, hole_record, window_record
from tsdb.chunks.resume import holds_since, is_whole, trimmed_near
from tsdb.codec.chunk.marker import HoleRecord, WindowMarker
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied, Head
from tsdb.head.memory import HeadMemory
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import first_records
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet

PARTS_MORE = 1.25  # A window that is full after half of its records is built in 3 parts, not 2: ranges differ in size.
PARTS_MAX = 64  # Bounds how often a window's records are read.


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
    stretch = first, decision
    made = _rebuild(partition, start_ms, options)
    scan = _scan(partition, item.late_first, options, head=made.head)
    both = WindowAndLate(made, scan, item.late_first, item.late_end)
    with closing(read_into(both, log, partition, *stretch, times, clock, options.patience_s)) as steps:
        for _ in steps:
            yield from scan.records()
            if made.full_at is not None and both.next_offset >= item.late_end:
                break
    if item.late_first < item.late_end:
        assert first <= item.late_first < item.late_end <= decision, f"late minutes outside the window: {item}"
        scan.end(item.late_end)
        yield from scan.records()
    if made.full_at is None:
        yield from made.records(decision)
        return
    parts = min(math.ceil(PARTS_MORE * (decision - first) / (made.full_at + 1 - first)), PARTS_MAX)
    del made, scan, both  # They hold as much as the next part may need.
    yield from _in_parts(partition, start_ms, ALL_PACKS.split(parts), stretch, log, options, clock)


def _in_parts(
    partition: int,
    start_ms: int,
    waiting: list[PackRange],
    stretch: tuple[int, int],
    log: Log,
    options: BuildOptions,
    clock: Clock,
) -> Iterator[ChunkRecord]:
    """The base of a window, built of one range of packs after another: each reads the stretch of the log again."""
    decision = stretch[1]
    marker = WindowMarker(decision, 0, 0, 0)
    while waiting:
        made = _rebuild(partition, start_ms, options, waiting.pop(0))
        with closing(read_into(made, log, partition, *stretch, options.times, clock, options.patience_s)) as steps:
            for _ in steps:
                if made.full_at is not None:
                    break
        if made.full_at is not None:
            waiting[:0] = made.packs.split(2)
            continue
        of_part = yield from made.chunks(decision)
        marker = WindowMarker(
            decision,
            marker.packs + of_part.packs,
            marker.chunks + of_part.chunks,
            marker.samples + of_part.samples,
        )
    yield window_record(start_ms, marker)


def _rebuild(partition: int, start_ms: int, options: BuildOptions, packs: PackRange = ALL_PACKS) -> WindowRebuild:
    return WindowRebuild(
        partition,
        start_ms,
        times=options.times,
        part_bytes_max=options.part_bytes_max,
        packs=packs,
        # A pack is built whole, so smaller ranges would not help where one pack is too large.
        sample_bytes_max=options.window_bytes_max if packs.length > ALL_PACKS.length // PARTS_MAX else None,
    )


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
        self.next_offset = 0
        """One past the last record taken."""

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
        self.next_offset = int(offsets[-1]) + 1
        first, end = np.searchsorted(offsets, self._late).tolist()
        if first < end:
            self._scan.apply(part(records, first, end), offsets[first:end], broker_ms[first:end])
        return self._window.apply(records, offsets, broker_ms)

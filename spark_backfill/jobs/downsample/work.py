"""Work: announce and write the derived series for the stale windows of packs. Runs in tasks; safe to repeat.

A window is stale when it has samples that are newer than the derived series of its pack.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.downsample.deriving import NOTHING_BEFORE, Before, derived_fragment, last_samples
from spark_backfill.jobs.downsample.sources import DerivedSeries, SourcePack, derived_series
from spark_backfill.places import Places
from spark_backfill.writing.appender import TaskAppender
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, decode_cover, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, encode_key
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkStore, WindowRange
from tsdb.history.merge import merge
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import CorruptData, UnknownVersion
from tsdb.model.placement import PlacementRule
from tsdb.model.resolution import AGGREGATES, RESOLUTIONS_MS
from tsdb.model.window import index_epoch

Newest = dict[int, int]
"""Highest order of the chunks of a window, by window start; chunks that a fold replaced count too."""


@dataclass(frozen=True, slots=True)
class DownsampleTask:
    """A function that Spark sends to tasks.

    orders: offset of the run's tick, by partition; empty: write nothing. span: windows to check; history has all their
    records below the ticks. again: derive all windows again, stale or not.
    """

    places: Places
    rule: PlacementRule
    orders: Mapping[int, int]
    span: WindowRange
    window_ms: int
    part_bytes_max: int
    again: bool = False

    def __call__(self, packs: Iterable[SourcePack]) -> Iterator[DownsampleCounts]:
        """Yield the counts of each pack."""
        with quoted_errors(), self.places.open_history() as history, self.places.open_log() as log:
            writer = _Writer(TaskAppender(log, SERIES), TaskAppender(log, CHUNKS), self)
            for pack in packs:
                yield _Pack(self, history, pack).run(writer)
            writer.chunks.finish()


@dataclass(frozen=True, slots=True)
class DownsampleCounts:
    """windows: (pack, window)s checked. stale: those to derive again. samples: derived samples. refused: windows with
    chunks that do not decode, or with samples of a series that is in no index."""

    packs: int = 0
    windows: int = 0
    stale: int = 0
    samples: int = 0
    chunks: int = 0
    refused: int = 0

    def plus(self, other: DownsampleCounts) -> DownsampleCounts:
        """The sum of both counts."""
        return DownsampleCounts(
            self.packs + other.packs,
            self.windows + other.windows,
            self.stale + other.stale,
            self.samples + other.samples,
            self.chunks + other.chunks,
            self.refused + other.refused,
        )


@dataclass(frozen=True, slots=True)
class _Derived:
    """Derived series of one pack at one resolution. ids: ids of the derived series of each source series, in the order
    of AGGREGATES.
    """

    resolution_ms: int
    pack_id: int
    series: Sequence[DerivedSeries]
    ids: Mapping[int, NDArray[np.uint64]]

    @classmethod
    def of(cls, pack: SourcePack, resolution: str, rule: PlacementRule) -> _Derived:
        """The derived series of all series of a pack."""
        made = {source: derived_series(labels, resolution, rule) for source, labels in pack.labels.items()}
        series = [one for by_aggregate in made.values() for one in by_aggregate.values()]
        ids = {
            source: np.array([found[aggregate].series_id for aggregate in AGGREGATES], np.uint64)
            for source, found in made.items()
        }
        # All have the same placement and metric family, so they are one pack.
        return cls(RESOLUTIONS_MS[resolution], series[0].pack_id, series, ids)


class _Pack:
    """One pack: its windows in ascending order."""

    def __init__(self, task: DownsampleTask, history: ChunkStore, pack: SourcePack) -> None:
        self._task = task
        self._history = history
        self._pack = pack
        self._known = np.array(sorted(pack.labels), np.uint64)
        self._derived = [_Derived.of(pack, resolution, task.rule) for resolution in RESOLUTIONS_MS]

    def run(self, writer: _Writer) -> DownsampleCounts:
        pack_ids = [self._pack.pack_id, *(one.pack_id for one in self._derived)]
        source, *derived = newest_orders(self._history, pack_ids, self._span())
        stale = sorted(source) if self._task.again else stale_windows(source, derived)
        done = DownsampleCounts(packs=1, windows=len(source), stale=len(stale))
        if not self._task.orders:
            return done
        last = NOTHING_BEFORE
        before = None
        for window in stale:
            if before != window - self._task.window_ms:
                last = self._last_before(window)
            fragment = self._read(window)
            if fragment is None or not np.isin(fragment.series_id, self._known).all():
                done, last = done.plus(DownsampleCounts(refused=1)), NOTHING_BEFORE
            else:
                for one in self._derived:
                    done = done.plus(self._write(writer, one, fragment, last))
                last = last_samples(fragment, last)
            before = window
        return done

    def _write(self, writer: _Writer, derived: _Derived, fragment: Fragment, last: Before) -> DownsampleCounts:
        order = self._task.orders[self._pack.partition]
        made = derived_fragment(fragment, derived.resolution_ms, last, derived.ids, derived.pack_id, order)
        writer.announce(self._pack.partition, derived.series, fragment.window_start_ms)
        return DownsampleCounts(samples=made.samples, chunks=writer.write(self._pack.partition, made, order))

    def _last_before(self, window_start_ms: int) -> Before:
        fragment = self._read(window_start_ms - self._task.window_ms)
        return NOTHING_BEFORE if fragment is None else last_samples(fragment, NOTHING_BEFORE)

    def _read(self, window_start_ms: int) -> Fragment | None:
        """The merged samples of a window; None when it has no samples, or a chunk does not decode."""
        pieces = self._history.read([self._pack.pack_id], WindowRange(window_start_ms, window_start_ms + 1))
        try:
            fragments = [decode_chunk(row.value) for piece in pieces for row in piece]
        except (CorruptData, UnknownVersion):
            return None
        return merge(fragments) if fragments else None

    def _span(self) -> WindowRange:
        start_ms = max(self._pack.start_ms, self._task.span.start_ms)
        return WindowRange.touching(start_ms, min(self._pack.end_ms, self._task.span.end_ms), self._task.window_ms)


class _Writer:
    def __init__(self, series: TaskAppender, chunks: TaskAppender, task: DownsampleTask) -> None:
        self.chunks = chunks
        self._series = series
        self._task = task
        self._announced: set[tuple[int, int]] = set()

    def announce(self, partition: int, series: Iterable[DerivedSeries], window_start_ms: int) -> None:
        """Announce series in each index epoch of the window. Returns when the announcements are acknowledged."""
        for one in series:
            for ts_ms in (window_start_ms, window_start_ms + self._task.window_ms - 1):
                mark = one.series_id, index_epoch(one.series_id, ts_ms)
                if mark not in self._announced:
                    self._announced.add(mark)
                    self._series.send(partition, *encode_announcement(*mark, one.pack_id, one.canonical))
        self._series.finish()

    def write(self, partition: int, fragment: Fragment, order: int) -> int:
        """Send a fragment as chunk parts; return the number of parts."""
        parts = encode_chunk(fragment, window_ms=self._task.window_ms, part_bytes_max=self._task.part_bytes_max)
        for number, value in enumerate(parts):
            key = ChunkKey(fragment.pack_id, fragment.window_start_ms, Kind.IMPORT, order, number)
            self.chunks.send(partition, encode_key(key), value)
        return len(parts)


def newest_orders(history: ChunkStore, pack_ids: Iterable[int], windows: WindowRange) -> list[Newest]:
    """Newest orders of each pack. A fold counts with the orders that it covers; a fold of folds counts with its own
    order."""
    return [_newest(history, pack_id, windows) for pack_id in pack_ids]


def stale_windows(source: Newest, derived: Sequence[Newest]) -> list[int]:
    """Start of each window that is newer in the source than in one of the derived packs, ascending.

    The window right after a stale one is stale too: its increases begin from the last samples of the one before.
    """
    stale = {window for window, order in source.items() if any(one.get(window, -1) < order for one in derived)}
    following = {after for before, after in zip(sorted(source), sorted(source)[1:], strict=False) if before in stale}
    return sorted(stale | following)


def _newest(history: ChunkStore, pack_id: int, windows: WindowRange) -> Newest:
    found: Newest = {}
    folds: dict[int, list[ChunkKey]] = {}
    for key in history.keys(pack_id, windows):
        if key.kind == Kind.FOLDED:
            folds.setdefault(key.window_start_ms, []).append(key)
        else:
            # The order of a base is its decision offset, which is above the offset of every sample in it.
            found[key.window_start_ms] = max(found.get(key.window_start_ms, -1), key.order)
    for window in folds:
        found[window] = max(found.get(window, -1), _of_folds(history, pack_id, window))
    return found


def _of_folds(history: ChunkStore, pack_id: int, window: int) -> int:
    newest = -1
    for piece in history.read([pack_id], WindowRange(window, window + 1)):
        for row in piece:
            cover = decode_cover(row.value) if row.key.kind == Kind.FOLDED and row.key.part == 0 else None
            if cover is not None:
                orders = [key.order for key in cover.keys if key.kind != Kind.FOLDED]
                newest = max([newest, *orders] if orders else [newest, row.key.order])
    return newest

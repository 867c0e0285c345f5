"""Late: finds samples in the log that lie before the seam and that history may not have yet.

They may replace samples of history. So one task reads both for each (series, window) with such a sample, and merges
them by order; the tasks that read history leave these out. Planning lists them, and keeps no sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from spark_backfill.source.filters import Narrowing
from spark_backfill.source.log_samples import OffsetsPart, inside, samples_of
from spark_backfill.source.newest import joined, last_versions
from spark_backfill.source.options import TimeSpan
from spark_backfill.source.rows import SourceSamples, offset_of
from spark_backfill.source.runs import SampleRuns
from spark_backfill.source.seam import LogSeam
from tsdb.codec.chunk.chunk import Fragment, decode_chunk
from tsdb.history.interface import ChunkRow, ChunkStore, WindowRange
from tsdb.history.merge import merge
from tsdb.log.interface import Log
from tsdb.model.errors import CorruptData, Overloaded

SAMPLES_MAX = 16 << 20  # Samples of one partition, which take some 800 MiB in a task.


@dataclass
class LatePart(InputPartition):
    """Late samples of a range of the log, of times before from_ms."""

    records: OffsetsPart
    from_ms: int
    window_ms: int


@dataclass(frozen=True)
class LateSeries:
    """Pairs of series and window that late parts read: series_id uint64 (n,), window_ms int64 (n,), distinct.

    The tasks of history read all other pairs that begin before from_ms. Spark sends this value to tasks.
    """

    from_ms: int
    window_ms: int
    series_id: NDArray[np.uint64]
    window_start_ms: NDArray[np.int64]

    def without(self, runs: SampleRuns) -> SampleRuns:
        """The runs that history's tasks read. A run lies in one window."""
        if not len(runs):
            return runs
        windows = runs.ts_ms[runs.start[:-1]] // self.window_ms * self.window_ms
        kept = windows < self.from_ms
        for window in np.unique(windows[kept]).tolist():
            late = self._by_window.get(window)
            if late is not None:
                kept &= (windows != window) | ~np.isin(runs.series_id, late)
        return runs.where(np.repeat(kept, runs.lengths))

    @cached_property
    def _by_window(self) -> dict[int, NDArray[np.uint64]]:
        windows = np.unique(self.window_start_ms).tolist()
        return {window: self.series_id[self.window_start_ms == window] for window in windows}


def late_parts(seam: LogSeam) -> list[LatePart]:
    """One part for each partition with records that history may lack."""
    return [
        LatePart(OffsetsPart(seam.topic_id, seam.ahead_ms, partition, start, end), seam.from_ms, seam.window_ms)
        for partition, (start, end) in seam.late.items()
        if start < end
    ]


def late_series(
    log: Log, seam: LogSeam, parts: Iterable[LatePart], narrowing: Narrowing, allow_holes: bool
) -> LateSeries:
    """The pairs of all parts. Raises the errors of samples_of, and Overloaded (late_samples) as read_late does."""
    ids, windows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for part in parts:
        count = 0
        for samples in _late_samples(log, part, narrowing, allow_holes, count=False):
            count = _counted(count, samples, part)
            pairs = np.stack([samples.series_id.view(np.int64), samples.ts_ms // seam.window_ms * seam.window_ms])
            found = np.unique(pairs, axis=1)
            ids.append(found[0].view(np.uint64))
            windows.append(found[1])
    pairs = np.unique(np.stack([np.concatenate(ids).view(np.int64), np.concatenate(windows)]), axis=1)
    return LateSeries(
        seam.from_ms, seam.window_ms, np.ascontiguousarray(pairs[0]).view(np.uint64), np.ascontiguousarray(pairs[1])
    )


def read_late(
    log: Log, store: ChunkStore, part: LatePart, narrowing: Narrowing, allow_holes: bool
) -> Iterator[SourceSamples]:
    """Samples of the part's pairs of series and window, late ones and those of history, merged by order.

    Raises as samples_of and as history, and Overloaded (late_samples).
    """
    found: list[SourceSamples] = []
    count = 0
    for samples in _late_samples(log, part, narrowing, allow_holes, count=True):
        count = _counted(count, samples, part)
        found.append(samples)
    if not count:
        return
    late = last_versions(joined(found))
    windows = late.ts_ms // part.window_ms * part.window_ms
    order = np.lexsort((late.ts_ms, late.series_id, windows, late.pack_id))
    late, windows = late.at(order), windows[order]
    borders = np.flatnonzero((np.diff(late.pack_id) != 0) | (np.diff(windows) != 0)) + 1
    starts = [0, *borders.tolist(), len(late)]
    for start, end in pairwise(starts):
        fragment = _fragment(late.part(start, end), int(windows[start]))
        window = WindowRange(fragment.window_start_ms, fragment.window_start_ms + part.window_ms)
        rows = [decoded(row) for piece in store.read([fragment.pack_id], window) for row in piece]
        merged = merge([fragment, *(_of_series(each, fragment.series_id) for each in rows)])
        samples = SampleRuns.of([merged]).samples
        yield samples.where(inside(samples, narrowing.span))


def decoded(row: ChunkRow) -> Fragment:
    """The samples of a row. Raises CorruptData with the row's key."""
    try:
        return decode_chunk(row.value)
    except CorruptData as error:
        raise CorruptData(f"{row.key}: {error.message}", reason=error.reason) from error


def _late_samples(
    log: Log, part: LatePart, narrowing: Narrowing, allow_holes: bool, *, count: bool
) -> Iterator[SourceSamples]:
    span = narrowing.span.within(TimeSpan(end_ms=part.from_ms))
    found = samples_of(log, part.records, replace(narrowing, span=span), allow_holes, count=count)
    return (samples for samples in found if len(samples))


def _counted(count: int, samples: SourceSamples, part: LatePart) -> int:
    count += len(samples)
    if count > SAMPLES_MAX:
        raise Overloaded(
            f"partition {part.records.partition}: over {SAMPLES_MAX} samples before {part.from_ms} ms are in the"
            " log and not loaded yet: the chunk stage or the loader is behind (`tsdb status`); wait, narrow the range,"
            " or read what history holds with the option partial=true",
            reason="late_samples",
            limit=SAMPLES_MAX,
            asked=count,
        )
    return count


def _fragment(samples: SourceSamples, window_start_ms: int) -> Fragment:
    """samples: the samples of one pack and window, ascending by series and time."""
    assert samples.versions is not None, "samples of the log have a place"
    series_id, first = np.unique(samples.series_id, return_index=True)
    return Fragment(
        int(samples.pack_id[0]),
        window_start_ms,
        series_id,
        np.append(first, len(samples)).astype(np.int64),
        samples.ts_ms,
        samples.value,
        offset_of(samples.versions.order),
        samples.details,
    )


def _of_series(fragment: Fragment, series_id: NDArray[np.uint64]) -> Fragment:
    """The part of a fragment that has these series."""
    kept = np.isin(fragment.series_id, series_id)
    lengths = np.diff(fragment.sample_start)
    rows = np.repeat(kept, lengths)
    return Fragment(
        fragment.pack_id,
        fragment.window_start_ms,
        fragment.series_id[kept],
        np.append(0, np.cumsum(lengths[kept])).astype(np.int64),
        fragment.ts_ms[rows],
        fragment.value[rows],
        fragment.order[rows],
        None if fragment.details is None else fragment.details.take(np.flatnonzero(rows)),
    )

"""Fragments: cut a stream of rows, sorted by (pack, window, range, series, time), into fragments for a writing task.

Only the rows determine the cuts, not the batches in which they come, so a repeated task makes the same chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.details import SampleDetails, histogram_digests, joined_details

LOOK_ROWS = 1 << 10
SAMPLES_MAX = 1 << 19  # Samples of a fragment: about 12 MiB of columns, and well below the limit of a chunk.


@dataclass(frozen=True, slots=True)
class SortedRows:
    """n rows, sorted by (partition, pack_id, window_start_ms, range_number, series_id, ts_ms), ids in any fixed order.

    partition, range_number int32 (n,); pack_id, series_id uint64 (n,); window_start_ms, ts_ms int64 (n,); value float64
    (n,). range_number: the share of a split pack's series that the row's series is in. details: those of the rows, None
    where they have none.
    """

    partition: NDArray[np.int32]
    pack_id: NDArray[np.uint64]
    window_start_ms: NDArray[np.int64]
    range_number: NDArray[np.int32]
    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    details: SampleDetails | None = None

    def __len__(self) -> int:
        return len(self.ts_ms)

    def part(self, start: int, end: int) -> SortedRows:
        """Rows [start, end), sharing memory."""
        details = None if self.details is None else self.details.part(start, end)
        return self._made((column[start:end] for column in self._columns), details)

    def followed_by(self, other: SortedRows) -> SortedRows:
        """A copy of these rows, followed by the rows of `other`."""
        pairs = zip(self._columns, other._columns, strict=True)
        details = joined_details([(len(self), self.details), (len(other), other.details)])
        return self._made((np.concatenate(pair) for pair in pairs), details)

    @staticmethod
    def _made(columns: Iterable[Any], details: SampleDetails | None) -> SortedRows:
        return replace(SortedRows(*columns), details=details)

    @property
    def _columns(self) -> tuple[NDArray[Any], ...]:
        ids = (self.partition, self.pack_id, self.window_start_ms, self.range_number)
        return (*ids, self.series_id, self.ts_ms, self.value)


@dataclass(frozen=True, slots=True)
class Cut:
    """Some series of a (pack, window, range), or some samples of one. All orders are 0: the encoder sets them.

    duplicates: rows equal to another row. conflicts: rows with another value for the same series and time; the value
    with the highest bits is written, of equal ones a histogram, then the later start timestamp.
    """

    partition: int
    range_number: int
    fragment: Fragment
    duplicates: int
    conflicts: int


def cuts(batches: Iterable[SortedRows], samples_max: int = SAMPLES_MAX) -> Iterator[Cut]:
    """All rows in order, each once, cut into fragments of one (pack, window, range) and at most samples_max rows."""
    waiting: SortedRows | None = None
    for batch in batches:
        waiting = batch if waiting is None else waiting.followed_by(batch)
        while waiting is not None and len(waiting):
            group, complete = _first_group(waiting)
            if not complete and group <= samples_max:
                break
            # The row after the last one that fits shows whether that one ends its series.
            size = group if group <= samples_max else _fitting(waiting, samples_max)
            yield _cut(waiting.part(0, size))
            waiting = waiting.part(size, len(waiting))
    while waiting is not None and len(waiting):
        group, _ = _first_group(waiting)
        size = group if group <= samples_max else _fitting(waiting, samples_max)
        yield _cut(waiting.part(0, size))
        waiting = waiting.part(size, len(waiting))


def _first_group(rows: SortedRows) -> tuple[int, bool]:
    """(number of rows of the first group, whether another group follows)."""
    end = 0
    for count in _doubling(len(rows)):
        other = (
            (rows.pack_id[end:count] != rows.pack_id[0])
            | (rows.window_start_ms[end:count] != rows.window_start_ms[0])
            | (rows.range_number[end:count] != rows.range_number[0])
        )
        first = int(np.argmax(other))
        if other[first]:
            return end + first, True
        end = count
    return end, False


def _doubling(count: int) -> Iterator[int]:
    """Ends of looks at the first of `count` rows. A group is mostly a small part of a batch."""
    end = LOOK_ROWS
    while end < count:
        yield end
        end *= 2
    yield count


def _fitting(rows: SortedRows, samples_max: int) -> int:
    """Number of rows to take from the first group: whole series if one fits, else whole timestamps of one series."""
    series, times = rows.series_id[: samples_max + 1], rows.ts_ms[: samples_max + 1]
    for changed in (series[1:] != series[:-1], (times[1:] != times[:-1]) | (series[1:] != series[:-1])):
        ends = np.flatnonzero(changed)
        if len(ends):
            return int(ends[-1]) + 1
    # All rows have one timestamp. Each cut removes duplicates among its rows, and merging removes the others.
    return samples_max


def _cut(rows: SortedRows) -> Cut:
    series, times, bits, details = rows.series_id, rows.ts_ms, rows.value.view(np.uint64), rows.details
    ranks = [bits]
    if not _is_ascending(series, times):
        ranks = [*_detail_ranks(details), bits]
        order = np.lexsort((*ranks, times, series))
        series, times, ranks = series[order], times[order], [rank[order] for rank in ranks]
        details = None if details is None else details.take(order)
    same = (series[1:] == series[:-1]) & (times[1:] == times[:-1])
    equal = np.logical_and.reduce([same, *(rank[1:] == rank[:-1] for rank in ranks)])
    duplicates = int(equal.sum())
    # The last row of an equal (series, time) has the highest bits.
    last = np.append(~same, True)
    series, times, bits = series[last], times[last], ranks[-1][last]
    details = None if details is None else details.take(np.flatnonzero(last))
    starts = np.append(np.flatnonzero(np.append(True, series[1:] != series[:-1])), len(series)).astype(np.int64)
    fragment = Fragment(
        int(rows.pack_id[0]),
        int(rows.window_start_ms[0]),
        series[starts[:-1]],
        starts,
        times,
        bits.view(np.float64),
        np.zeros(len(times), np.int64),
        details,
    )
    return Cut(int(rows.partition[0]), int(rows.range_number[0]), fragment, duplicates, int(same.sum()) - duplicates)


def _is_ascending(series: NDArray[np.uint64], times: NDArray[np.int64]) -> bool:
    """Whether rows are sorted by series and time already, without a time twice."""
    return bool(((series[1:] > series[:-1]) | ((series[1:] == series[:-1]) & (times[1:] > times[:-1]))).all())


def _detail_ranks(details: SampleDetails | None) -> list[NDArray[np.uint64]]:
    """Columns that rank rows of one series, time and value, the last one first: histograms above floats, later start
    timestamps, and the content, so that the order of the input never counts."""
    if details is None:
        return []
    found: list[NDArray[np.uint64]] = []
    if details.histograms is not None and details.histogram_of is not None:
        of, contents = details.histogram_of, histogram_digests(details.histograms)
        found.append(np.where(of >= 0, contents[of], np.uint64(0)))
    if details.start_ms is not None:
        found.append((details.start_ms ^ np.int64(-(1 << 63))).view(np.uint64))
    if details.histogram_of is not None:
        found.append((details.histogram_of >= 0).astype(np.uint64))
    return found

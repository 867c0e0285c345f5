"""Fragments out of a stream of rows sorted by (pack, window, range, series, time): what a writing task encodes.

Where a fragment is cut depends on the rows alone, not on the batches in which they come, so a task that runs twice
makes the same chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.fragment import Fragment

SAMPLES_MAX = 1 << 19  # Of a fragment: some 12 MiB of columns, and well below what a chunk may hold.


@dataclass(frozen=True, slots=True)
class SortedRows:
    """n rows, sorted by (partition, pack_id, window_start_ms, range_number, series_id, ts_ms), ids in any fixed order.

    partition, range_number int32 (n,); pack_id, series_id uint64 (n,); window_start_ms, ts_ms int64 (n,); value float64
    (n,). range_number: which share of a heavy pack's series the row is in.
    """

    partition: NDArray[np.int32]
    pack_id: NDArray[np.uint64]
    window_start_ms: NDArray[np.int64]
    range_number: NDArray[np.int32]
    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ts_ms)

    def part(self, start: int, end: int) -> SortedRows:
        """Rows [start, end), sharing memory."""
        return self._made(column[start:end] for column in self._columns)

    def followed_by(self, other: SortedRows) -> SortedRows:
        """Both, one after the other."""
        pairs = zip(self._columns, other._columns, strict=True)
        return self._made(np.concatenate(pair) for pair in pairs)

    @staticmethod
    def _made(columns: Iterable[NDArray[Any]]) -> SortedRows:
        return SortedRows(*columns)

    @property
    def _columns(self) -> tuple[NDArray[Any], ...]:
        ids = (self.partition, self.pack_id, self.window_start_ms, self.range_number)
        return (*ids, self.series_id, self.ts_ms, self.value)


@dataclass(frozen=True, slots=True)
class Cut:
    """Some series of a (pack, window, range), or some samples of one. orders are all 0: whoever encodes sets them.

    duplicates: rows that said the same as another. conflicts: those that said another value of the same series and
    time; of these the value with the highest bits stands.
    """

    partition: int
    range_number: int
    fragment: Fragment
    duplicates: int
    conflicts: int


def cuts(batches: Iterable[SortedRows], samples_max: int = SAMPLES_MAX) -> Iterator[Cut]:
    """Every row once, in order; a fragment has rows of one (pack, window, range) and at most samples_max of them."""
    waiting: SortedRows | None = None
    for batch in batches:
        waiting = batch if waiting is None else waiting.followed_by(batch)
        while waiting is not None and len(waiting):
            group, complete = _first_group(waiting)
            if not complete and group <= samples_max:
                break
            # A row more than fits tells whether the last that fits ends its series.
            size = group if group <= samples_max else _fitting(waiting, samples_max)
            yield _cut(waiting.part(0, size))
            waiting = waiting.part(size, len(waiting))
    while waiting is not None and len(waiting):
        group, _ = _first_group(waiting)
        size = group if group <= samples_max else _fitting(waiting, samples_max)
        yield _cut(waiting.part(0, size))
        waiting = waiting.part(size, len(waiting))


def _first_group(rows: SortedRows) -> tuple[int, bool]:
    """(how many rows the first group has here, whether another follows it)."""
    other = (
        (rows.pack_id != rows.pack_id[0])
        | (rows.window_start_ms != rows.window_start_ms[0])
        | (rows.range_number != rows.range_number[0])
    )
    end = int(np.argmax(other))
    return (end, True) if other[end] else (len(rows), False)


def _fitting(rows: SortedRows, samples_max: int) -> int:
    """Rows of the first group to take: whole series if any fits, else whole timestamps of the one series."""
    series, times = rows.series_id[: samples_max + 1], rows.ts_ms[: samples_max + 1]
    for changed in (series[1:] != series[:-1], (times[1:] != times[:-1]) | (series[1:] != series[:-1])):
        ends = np.flatnonzero(changed)
        if len(ends):
            return int(ends[-1]) + 1
    # One timestamp, over and over: the duplicates of a cut are those of its own rows, and merging does the rest.
    return samples_max


def _cut(rows: SortedRows) -> Cut:
    bits = rows.value.view(np.uint64)
    order = np.lexsort((bits, rows.ts_ms, rows.series_id))
    series, times, bits = rows.series_id[order], rows.ts_ms[order], bits[order]
    same = (series[1:] == series[:-1]) & (times[1:] == times[:-1])
    duplicates = int((same & (bits[1:] == bits[:-1])).sum())
    # The last of equal (series, time) has the highest bits.
    last = np.append(~same, True)
    series, times, bits = series[last], times[last], bits[last]
    starts = np.append(np.flatnonzero(np.append(True, series[1:] != series[:-1])), len(series)).astype(np.int64)
    fragment = Fragment(
        int(rows.pack_id[0]),
        int(rows.window_start_ms[0]),
        series[starts[:-1]],
        starts,
        times,
        bits.view(np.float64),
        np.zeros(len(times), np.int64),
    )
    return Cut(int(rows.partition[0]), int(rows.range_number[0]), fragment, duplicates, int(same.sum()) - duplicates)

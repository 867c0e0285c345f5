"""Runs: the samples of one series in one window, as history stores them, and Arrow batches with one run a row.

A row costs Spark about 100 ns, independent of its content, so a scan of much history should request runs as rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.source.columns import PACK_ID, SERIES_ID, TS, VALUE, SampleColumns, is_detail
from spark_backfill.source.rows import (
    BATCH_ROWS,
    SourceSamples,
    check_details,
    details_column,
    ids_column,
    times_column,
    values_column,
)
from spark_backfill.source.series_table import SeriesLabels
from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.details import SampleDetails, joined_details

BATCH_SAMPLES = BATCH_ROWS  # In smaller batches the overhead of a batch is larger than its work.


@dataclass(frozen=True, slots=True)
class SampleRuns:
    """k runs, n samples in all. Run i is the samples [start[i], start[i + 1]); no run is empty.

    series_id, pack_id: uint64 (k,). start: int64 (k + 1,). ts_ms: int64 (n,), ascending within a run; value: float64.
    """

    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    start: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    details: SampleDetails | None = None

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> SampleRuns:
        """All runs of the fragments, in order. At least one fragment is needed."""
        lengths = np.concatenate([np.diff(each.sample_start) for each in fragments])
        return cls(
            np.concatenate([each.series_id for each in fragments]),
            np.repeat(np.array([each.pack_id for each in fragments], np.uint64), [each.series for each in fragments]),
            _starts(lengths),
            np.concatenate([each.ts_ms for each in fragments]),
            np.concatenate([each.value for each in fragments]),
            joined_details([(each.samples, each.details) for each in fragments]),
        )

    def __len__(self) -> int:
        return len(self.series_id)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of samples of each run, int64 (k,)."""
        return np.diff(self.start)

    @property
    def samples(self) -> SourceSamples:
        """The same samples, with the ids repeated for each sample; ts_ms and value share memory."""
        lengths = self.lengths
        return SourceSamples(
            np.repeat(self.series_id, lengths),
            np.repeat(self.pack_id, lengths),
            self.ts_ms,
            self.value,
            details=self.details,
        )

    def where(self, kept: NDArray[np.bool_]) -> SampleRuns:
        """The samples where `kept`, bool (n,), is true, without empty runs. Returns itself when all are kept."""
        if kept.all():
            return self
        counts = np.diff(np.append(0, np.cumsum(kept))[self.start])
        left = counts > 0
        details = None if self.details is None else self.details.take(np.flatnonzero(kept))
        columns = self.ts_ms[kept], self.value[kept], details
        return SampleRuns(self.series_id[left], self.pack_id[left], _starts(counts[left]), *columns)

    def within(self, start_ms: int, end_ms: int) -> SampleRuns:
        """The samples of [start_ms, end_ms), without empty runs. Returns itself when all are inside, the usual case."""
        if not len(self) or (start_ms <= self.ts_ms.min() and self.ts_ms.max() < end_ms):
            return self
        return self.where((self.ts_ms >= start_ms) & (self.ts_ms < end_ms))

    def part(self, first: int, last: int) -> SampleRuns:
        """Runs [first, last), sharing memory."""
        runs, samples = slice(first, last), slice(int(self.start[first]), int(self.start[last]))
        start = self.start[first : last + 1] - self.start[first]
        details = None if self.details is None else self.details.part(samples.start, samples.stop)
        columns = self.ts_ms[samples], self.value[samples], details
        return SampleRuns(self.series_id[runs], self.pack_id[runs], start, *columns)


def gathered(fragments: Iterable[Fragment]) -> Iterator[SampleRuns]:
    """All runs of the fragments in groups of at least BATCH_SAMPLES samples; only the last group may be smaller."""
    waiting: list[Fragment] = []
    samples = 0
    for fragment in fragments:
        waiting.append(fragment)
        samples += fragment.samples
        if samples >= BATCH_SAMPLES:
            yield SampleRuns.of(waiting)
            waiting, samples = [], 0
    if waiting:
        yield SampleRuns.of(waiting)


def run_batches(runs: SampleRuns, columns: SampleColumns, table: SeriesLabels | None) -> Iterator[pa.RecordBatch]:
    """One row a run, in batches of BATCH_SAMPLES samples to twice that, plus one run.

    table: contains every series of `runs`; None when `columns` has no labels.
    """
    first = 0
    while first < len(runs):
        last = len(runs)
        if runs.start[-1] - runs.start[first] >= 2 * BATCH_SAMPLES:
            last = int(np.searchsorted(runs.start, runs.start[first] + BATCH_SAMPLES))
        part = runs.part(first, last)
        check_details(part.details, columns)
        yield pa.RecordBatch.from_arrays([_column(of, part, table) for of in columns.arrow], schema=columns.arrow)
        first = last


def _column(of: pa.Field, runs: SampleRuns, table: SeriesLabels | None) -> pa.Array:
    if of.name == SERIES_ID:
        return ids_column(runs.series_id)
    if of.name == PACK_ID:
        return ids_column(runs.pack_id)
    if of.name in (TS, VALUE) or is_detail(of):
        samples = _samples_column(of, runs)
        return pa.ListArray.from_arrays(pa.array(runs.start.astype(np.int32)), samples, type=of.type)
    assert table is not None, f"column {of.name} without a table of series"
    return table.labels(of, table.find(runs.series_id))


def _samples_column(of: pa.Field, runs: SampleRuns) -> pa.Array:
    if of.name == TS:
        return times_column(runs.ts_ms)
    if of.name == VALUE:
        return values_column(runs.value, runs.details)
    return details_column(of.name, runs.details, len(runs.ts_ms)).cast(of.type.value_type)


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(lengths)).astype(np.int64)

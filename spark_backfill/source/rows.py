"""Rows: converts samples to Arrow batches, without a Python object for each sample. Labels come from a table of
series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.source.columns import (
    ARROW_TS,
    BROKER_TIME,
    HISTOGRAM,
    OFFSET,
    ORDER,
    PACK_ID,
    PARTITION,
    SERIES_ID,
    START_TS,
    TS,
    VALUE,
    SampleColumns,
    is_detail,
    is_version,
)
from spark_backfill.source.series_table import ArrowLabels
from tsdb.codec.histogram_rows import histogram_column, start_column
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest

BATCH_ROWS = 65_536  # The rows take about 20 MiB with six labels.
US_PER_MS = 1_000
INDEX_BITS = 20  # A record has at most 1 MiB, so fewer samples than this many bits count.


def check_details(details: SampleDetails | None, columns: SampleColumns) -> None:
    """Raises InvalidRequest (no_column) where a sample has a histogram or a start timestamp and no column shows it:
    rows without them would be a silent loss."""
    if details is None:
        return
    found = {HISTOGRAM: details.histograms, START_TS: details.start_ms}
    missing = [name for name, column in found.items() if column is not None and name not in columns.details]
    if missing:
        names = " and ".join(missing)
        raise InvalidRequest(
            f"samples have {names}, and no column shows that: read with the schema `sample_schema(details=True)` of"
            " spark_backfill.source.columns, or choose other series and times",
            reason="no_column",
        )


@dataclass(frozen=True, slots=True)
class Versions:
    """Positions of n samples in one partition of the log. order: int64 (n,), the rank among the versions of a sample;
    the highest counts. broker_ms: int64 (n,), broker time of the record."""

    partition: int
    order: NDArray[np.int64]
    broker_ms: NDArray[np.int64]

    def at(self, rows: slice | NDArray[np.bool_] | NDArray[np.int64]) -> Versions:
        """The versions of these rows."""
        return Versions(self.partition, self.order[rows], self.broker_ms[rows])


@dataclass(frozen=True, slots=True)
class SourceSamples:
    """n samples: series_id, pack_id uint64 (n,); ts_ms int64 (n,); value float64 (n,). versions: only for samples of
    the log. details: None
    where no sample has any."""

    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    versions: Versions | None = None
    details: SampleDetails | None = None

    def __len__(self) -> int:
        return len(self.ts_ms)

    def where(self, kept: NDArray[np.bool_]) -> SourceSamples:
        """The samples where `kept`, bool (n,), is true. Returns itself when all are kept."""
        return self if kept.all() else self.at(kept)

    def part(self, start: int, end: int) -> SourceSamples:
        """Samples [start, end), sharing memory."""
        return self.at(slice(start, end))

    def at(self, rows: slice | NDArray[np.bool_] | NDArray[np.int64]) -> SourceSamples:
        """The samples of these rows."""
        versions = None if self.versions is None else self.versions.at(rows)
        details = None if self.details is None else self.details.take(np.arange(len(self))[rows])
        columns = self.series_id[rows], self.pack_id[rows], self.ts_ms[rows], self.value[rows]
        return SourceSamples(*columns, versions, details)


def record_batches(
    samples: SourceSamples, columns: SampleColumns, table: ArrowLabels | None
) -> Iterator[pa.RecordBatch]:
    """The samples in batches of at most BATCH_ROWS.

    table: contains every series of `samples`; None when `columns` has no labels.
    """
    for start in range(0, len(samples), BATCH_ROWS):
        part = samples.part(start, start + BATCH_ROWS)
        check_details(part.details, columns)
        rows = table.find(part.series_id) if table is not None and columns.need_labels else None
        arrays = [_column(of, part, table, rows) for of in columns.arrow]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns.arrow)


def _column(
    of: pa.Field, samples: SourceSamples, table: ArrowLabels | None, rows: NDArray[np.int64] | None
) -> pa.Array:
    if of.name == SERIES_ID:
        return ids_column(samples.series_id)
    if of.name == PACK_ID:
        return ids_column(samples.pack_id)
    if of.name == TS:
        return times_column(samples.ts_ms)
    if of.name == VALUE:
        return values_column(samples.value, samples.details)
    if is_detail(of):
        return details_column(of.name, samples.details, len(samples)).cast(of.type)
    if is_version(of):
        assert samples.versions is not None, f"column {of.name} of samples without a place in the log"
        return _version_column(of, samples.versions)
    assert table is not None, f"column {of.name} without a table of series"
    assert rows is not None, f"column {of.name} is of labels"
    return table.labels(of, rows)


def _version_column(of: pa.Field, versions: Versions) -> pa.Array:
    if of.name == BROKER_TIME:
        return times_column(versions.broker_ms)
    if of.name == PARTITION:
        return pa.array(np.full(len(versions.order), versions.partition, np.int32))
    assert of.name in (ORDER, OFFSET), f"no column of versions: {of.name}"
    return pa.array(versions.order if of.name == ORDER else offset_of(versions.order))


def order_of(offset: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of the sample at `index` of the record at `offset` among all versions of the sample."""
    return (offset << INDEX_BITS) | index


def offset_of(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offset of the record that has an order."""
    return order >> INDEX_BITS


def ids_column(ids: NDArray[np.uint64]) -> pa.Array:
    """Ids as int64 of Spark, with the same bits."""
    return pa.array(ids.view(np.int64))


def times_column(ts_ms: NDArray[np.int64]) -> pa.Array:
    """Timestamps as an Arrow array. ts_ms: int64 (n,) in [TS_MS_MIN, TS_MS_MAX], both ends included."""
    return pa.array(ts_ms * US_PER_MS).cast(ARROW_TS)


def values_column(value: NDArray[np.float64], details: SampleDetails | None) -> pa.Array:
    """Values bit for bit, payloads of NaN included: `from_pandas=True` would turn NaN into null. Histograms have
    null."""
    has_histogram = None if details is None or details.histogram_of is None else details.histogram_of >= 0
    return pa.array(value, mask=has_histogram, from_pandas=False)


def details_column(name: str, details: SampleDetails | None, samples: int) -> pa.Array:
    """The column `name` of DETAILS, null where a sample has nothing there."""
    return (histogram_column if name == HISTOGRAM else start_column)(details, samples)

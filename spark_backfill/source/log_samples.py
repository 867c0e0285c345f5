"""Log samples: reads the samples in a range of offsets of the log as Arrow rows. Reads and streams of the log share it.

A sample with a timestamp too far ahead of its record gives no row; every reader of the log ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from spark_backfill.source.columns import SampleColumns
from spark_backfill.source.filters import Narrowing
from spark_backfill.source.newest import newest
from spark_backfill.source.options import TimeSpan
from spark_backfill.source.partition_series import PartitionSeries, worker_series
from spark_backfill.source.rows import SourceSamples, Versions, order_of, record_batches
from spark_backfill.source.series_table import ABSENT
from spark_backfill.worker_log import batches_between
from tsdb.codec.records.log_record import STATUS_CORRUPT, STATUS_UNKNOWN_VERSION, DecodedRecords, decode_records
from tsdb.log.interface import METRICS, SERIES, Log, RecordBatch
from tsdb.model.errors import HoleInRange, LostOffsets, UnknownVersion
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

TRIMMED, CORRUPT, UNKNOWN_SERIES = "trimmed", "corrupt_record", "unknown_series"
READ_PAST = "read past it with the option allow_holes=true"

skipped_total = counter(
    "tsdb_spark_log_skipped_total",
    "Reads of the log with allow_holes: trimmed or corrupt records, and samples of unannounced series, passed over.",
    "reason",
    (TRIMMED, CORRUPT, UNKNOWN_SERIES),
)

log = get_logger(__name__)


KEYS_MAX = 16 << 20  # Samples out of order that a task remembers: some 400 MiB.


@dataclass
class OffsetsPart(InputPartition):
    """All versions in the records [start, end) of a partition. ahead_ms: longest distance of a sample ahead of its
    record.

    The part carries the log's topic_id and ahead_ms because Spark serialises the reader for tasks before it plans.
    """

    topic_id: str
    ahead_ms: int
    partition: int
    start: int
    end: int


@dataclass
class NewestPart(OffsetsPart):
    """The versions that count in the records, of samples at or after from_ms, of the share `number` of all series."""

    from_ms: int | None = None
    number: int = 0
    shares: int = 1


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The rows and columns to read. labels_bytes_max: memory of a worker for the labels of series."""

    columns: SampleColumns
    narrowing: Narrowing
    allow_holes: bool
    labels_bytes_max: int

    @property
    def needs_series(self) -> bool:
        """Whether labels decide which rows to read, or are in them."""
        return self.columns.need_labels or bool(self.narrowing.matchers)


def read_part(opened: Log, part: OffsetsPart, query: LogQuery) -> Iterator[pa.RecordBatch]:
    """Rows of the part, in the order of the log.

    Raises HoleInRange (trimmed, corrupt_record, unknown_series) unless holes are allowed, UnknownVersion, Overloaded
    (labels_bytes, late_samples), and as the log does.
    """
    if isinstance(part, NewestPart):
        # Each pass and each share reads the same records, so only one of them counts the skipped records.
        counted = iter((part.number == 0, False))
        found = newest(lambda: _of_share(opened, part, query, count=next(counted)), KEYS_MAX)
    else:
        found = samples_of(opened, part, query.narrowing, query.allow_holes)
    yield from labelled(opened, part.partition, found, query)


def labelled(opened: Log, partition: int, found: Iterable[SourceSamples], query: LogQuery) -> Iterator[pa.RecordBatch]:
    """Rows of the samples that satisfy the matchers, with their labels. Raises as read_part."""
    series = worker_series.of(opened.topic_id(SERIES), partition) if query.needs_series else None
    for samples in found:
        chosen = samples if series is None else _announced(opened, samples, series, partition, query)
        yield from record_batches(chosen, query.columns, series)
        if series is not None:
            worker_series.bound(query.labels_bytes_max)


def samples_of(
    opened: Log, part: OffsetsPart, narrowing: Narrowing, allow_holes: bool, *, count: bool = True
) -> Iterator[SourceSamples]:
    """All versions of the part by ascending order, but for conditions on labels. count: count what is passed over.

    Raises HoleInRange (trimmed, corrupt_record) unless holes are allowed, UnknownVersion, and as the log does.
    """
    for batch in _batches(opened, part, allow_holes):
        records = decode_records(batch.values, batch.value_starts)
        _check(batch, records, allow_holes, count)
        yield _narrowed(batch, records, narrowing, part.ahead_ms)


def _of_share(opened: Log, part: NewestPart, query: LogQuery, *, count: bool) -> Iterator[SourceSamples]:
    span = query.narrowing.span.within(TimeSpan(start_ms=part.from_ms))
    for samples in samples_of(opened, part, replace(query.narrowing, span=span), query.allow_holes, count=count):
        if part.shares == 1:
            yield samples
        else:
            yield samples.where(samples.series_id % np.uint64(part.shares) == np.uint64(part.number))


def inside(samples: SourceSamples, span: TimeSpan) -> NDArray[np.bool_]:
    """Whether each sample lies in the span, bool (n,)."""
    kept = np.ones(len(samples), np.bool_)
    if span.start_ms is not None:
        kept &= samples.ts_ms >= span.start_ms
    if span.end_ms is not None:
        kept &= samples.ts_ms < span.end_ms
    return kept


def trimmed(partition: int, next_offset: int, low: int) -> HoleInRange:
    """The error of records that retention removed before they were read."""
    return HoleInRange(
        f"partition {partition}: the next record to read is {next_offset}, but the log begins at {low}: records"
        f" {next_offset} to {low - 1} are gone; continue without them with the option allow_holes=true",
        reason=TRIMMED,
        partition=partition,
    )


def skip_trimmed(partition: int, next_offset: int, low: int) -> None:
    """Count and log records that a read passes over with allow_holes."""
    skipped_total.labels(TRIMMED).inc(low - next_offset)
    log.warning("trimmed records passed over", partition=partition, next_offset=next_offset, low=low)


def _batches(opened: Log, part: OffsetsPart, allow_holes: bool) -> Iterator[RecordBatch]:
    next_offset = part.start
    while True:
        try:
            for batch in batches_between(opened, METRICS, part.partition, next_offset, part.end):
                yield batch
                next_offset = int(batch.offsets[-1]) + 1
            return
        except LostOffsets as error:
            if error.reason != "below_low_watermark":
                raise
            low = int(error.metadata["low"])
            if not allow_holes:
                raise trimmed(part.partition, next_offset, low) from error
            low = min(low, part.end)
            skip_trimmed(part.partition, next_offset, low)
            next_offset = low


def _check(batch: RecordBatch, records: DecodedRecords, allow_holes: bool, count: bool) -> None:
    unknown = np.flatnonzero(records.status == STATUS_UNKNOWN_VERSION)
    if len(unknown):
        offset = int(batch.offsets[unknown[0]])
        raise UnknownVersion(f"partition {batch.partition}, record {offset}: a newer writer's record")
    corrupt = np.flatnonzero(records.status == STATUS_CORRUPT)
    if len(corrupt) and not allow_holes:
        offset = int(batch.offsets[corrupt[0]])
        raise HoleInRange(f"partition {batch.partition}, record {offset}: corrupt; {READ_PAST}", reason=CORRUPT)
    if count:
        skipped_total.labels(CORRUPT).inc(len(corrupt))


def _narrowed(batch: RecordBatch, records: DecodedRecords, narrowing: Narrowing, ahead_ms: int) -> SourceSamples:
    counts = np.diff(records.sample_start)
    broker_ms = np.repeat(batch.broker_ms, counts)
    index = np.arange(len(records.ts_ms)) - np.repeat(records.sample_start[:-1], counts)
    versions = Versions(batch.partition, order_of(np.repeat(batch.offsets, counts), index), broker_ms)
    pack_id = np.repeat(records.pack_id, records.pack_length)
    samples = SourceSamples(records.series_id, pack_id, records.ts_ms, records.value, versions, records.details)
    kept: NDArray[np.bool_] = samples.ts_ms <= broker_ms + ahead_ms
    kept &= inside(samples, narrowing.span)
    if narrowing.pack_ids is not None:
        kept &= np.isin(samples.pack_id, np.array(sorted(narrowing.pack_ids), np.uint64))
    if narrowing.series_ids is not None:
        kept &= np.isin(samples.series_id, np.array(sorted(narrowing.series_ids), np.uint64))
    return samples.where(kept)


def _announced(
    opened: Log, samples: SourceSamples, series: PartitionSeries, partition: int, query: LogQuery
) -> SourceSamples:
    """The samples of announced series that satisfy the matchers.

    An announcement is in the log before the first sample of its series. So `series`, read to an end taken after the
    sample was fetched, has the series of every sample.
    """
    rows = series.find(samples.series_id)
    if (rows == ABSENT).any():
        series.read_on(opened, partition)
        rows = series.find(samples.series_id)
    known: NDArray[np.bool_] = rows != ABSENT
    if not known.all():
        if not query.allow_holes:
            missing = len(np.unique(samples.series_id[~known]))
            raise HoleInRange(
                f"partition {partition}: {missing} series were never announced; {READ_PAST}", reason=UNKNOWN_SERIES
            )
        skipped_total.labels(UNKNOWN_SERIES).inc(int((~known).sum()))
    if query.narrowing.matchers and known.any():
        known &= series.chosen(query.narrowing.matchers)[np.maximum(rows, 0)]
    return samples.where(known)

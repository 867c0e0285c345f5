"""Source `log`: the samples in the log as written. A (series, timestamp) written twice gives two rows.

Records are split by offsets. A sample with a timestamp too far ahead of its record gives no row; every reader of the
log ignores it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from spark_backfill.failures import quoted_errors
from spark_backfill.reading import batches_between
from spark_backfill.source.empty_plan import is_empty_plan
from spark_backfill.source.log_series import log_series
from spark_backfill.source.narrowed import NarrowedReader
from spark_backfill.source.rows import Samples, record_batches
from spark_backfill.source.series_table import SeriesLabels
from tsdb.codec.records.log_record import STATUS_CORRUPT, STATUS_UNKNOWN_VERSION, DecodedRecords, decode_records
from tsdb.log.interface import METRICS, Log, RecordBatch, Watermarks
from tsdb.log.meta import read_meta
from tsdb.log.records import first_records
from tsdb.model.errors import ConfigMismatch, HoleInRange, OutOfCoverage, UnknownVersion
from tsdb.model.time_set import TimeSet


@dataclass
class OffsetsPart(InputPartition):
    """Records [start, end) of a partition of the log. ahead_ms: a sample's longest distance ahead of its record.

    The part carries ahead_ms because Spark serialises the reader for tasks before it calls `partitions`.
    """

    ahead_ms: int
    partition: int
    start: int
    end: int


class LogSourceReader(NarrowedReader):
    def partitions(self) -> list[InputPartition]:
        """Parts up to the current end of the log. Raises OutOfCoverage (before_retention)."""
        with quoted_errors(), self._options.places.open_log() as log:
            times = _times(log)
            marks = log.watermarks(METRICS, range(log.partitions(METRICS)))
            starts = self._starts(log, marks, times)
            each = max(self._options.splits // len(marks), 1)
            return [
                OffsetsPart(times.ahead_ms, partition, int(start), int(end))
                for partition, mark in marks.items()
                for start, end in _even(starts[partition], mark.high, each)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if is_empty_plan(partition):
            return
        assert isinstance(partition, OffsetsPart), f"no part of ours: {partition}"
        with quoted_errors(), self._options.places.open_log() as log:
            table = self._table(log, partition.partition)
            for batch in batches_between(log, METRICS, partition.partition, partition.start, partition.end):
                records = decode_records(batch.values, batch.value_starts)
                self._check(batch, records)
                samples = self._wanted(batch, records, table, partition.ahead_ms)
                yield from record_batches(samples, self._columns, table)

    # On the driver.

    def _starts(self, log: Log, marks: Mapping[int, Watermarks], times: TimeSet) -> dict[int, int]:
        """First offset of each partition with samples of the span: a record's broker time is >= timestamp - ahead."""
        start_ms = self._narrowing.span.start_ms
        if start_ms is None:
            return {partition: mark.low for partition, mark in marks.items()}
        self._check_retention(log, marks, start_ms, times)
        found = log.offsets_for_times(METRICS, dict.fromkeys(marks, max(start_ms - times.ahead_ms, 0)))
        return {
            partition: mark.high if found[partition] is None else max(found[partition] or 0, mark.low)
            for partition, mark in marks.items()
        }

    def _check_retention(self, log: Log, marks: Mapping[int, Watermarks], start_ms: int, times: TimeSet) -> None:
        trimmed = {partition: mark.low for partition, mark in marks.items() if mark.low}
        for partition, record in first_records(log, METRICS, trimmed).items():
            whole_from_ms = None if record is None else record.broker_ms + 2 * times.ahead_ms
            if whole_from_ms is None or start_ms < whole_from_ms:
                raise OutOfCoverage(
                    f"partition {partition} of the log is trimmed: it is whole from {whole_from_ms} ms on; requested"
                    f" from {start_ms} ms: read older samples from history",
                    reason="before_retention",
                )

    # In tasks.

    def _check(self, batch: RecordBatch, records: DecodedRecords) -> None:
        unknown = np.flatnonzero(records.status == STATUS_UNKNOWN_VERSION)
        if len(unknown):
            offset = int(batch.offsets[unknown[0]])
            raise UnknownVersion(f"partition {batch.partition}, record {offset}: a newer writer's record")
        corrupt = np.flatnonzero(records.status == STATUS_CORRUPT)
        if len(corrupt) and not self._options.allow_holes:
            offset = int(batch.offsets[corrupt[0]])
            raise HoleInRange(
                f"partition {batch.partition}, record {offset}: corrupt; read past it with the option allow_holes=true",
                reason="corrupt_record",
            )

    def _wanted(
        self, batch: RecordBatch, records: DecodedRecords, table: SeriesLabels | None, ahead_ms: int
    ) -> Samples:
        samples = Samples(
            records.series_id, np.repeat(records.pack_id, records.pack_length), records.ts_ms, records.value
        )
        broker_ms = np.repeat(batch.broker_ms, np.diff(records.sample_start))
        kept: NDArray[np.bool_] = samples.ts_ms <= broker_ms + ahead_ms
        narrowed = self._narrowing
        if narrowed.span.start_ms is not None:
            kept &= samples.ts_ms >= narrowed.span.start_ms
        if narrowed.span.end_ms is not None:
            kept &= samples.ts_ms < narrowed.span.end_ms
        if narrowed.pack_ids is not None:
            kept &= np.isin(samples.pack_id, np.array(sorted(narrowed.pack_ids), np.uint64))
        if narrowed.series_ids is not None:
            kept &= np.isin(samples.series_id, np.array(sorted(narrowed.series_ids), np.uint64))
        return self._known(samples.where(kept), table, batch.partition)

    def _known(self, samples: Samples, table: SeriesLabels | None, partition: int) -> Samples:
        if table is None:
            return samples
        known = table.find(samples.series_id) >= 0
        if not self._narrowing.matchers and not known.all() and not self._options.allow_holes:
            raise HoleInRange(
                f"partition {partition}: {len(np.unique(samples.series_id[~known]))} series were never announced; read"
                " past them with the option allow_holes=true",
                reason="unknown_series",
            )
        return samples.where(known)

    def _table(self, log: Log, partition: int) -> SeriesLabels | None:
        if not self._columns.need_labels and not self._narrowing.matchers:
            return None
        global _kept
        key = self._query, partition
        if _kept[0] != key:
            _kept = key, log_series(log, partition, self._narrowing.matchers)
        return _kept[1]


_kept: tuple[tuple[str, int], SeriesLabels | None] = (("", -1), None)


def _times(log: Log) -> TimeSet:
    settings = read_meta(log)
    if settings is None:
        raise ConfigMismatch("topic meta holds no settings: run `tsdb topics create`", reason="meta")
    return settings.time_set


def _even(start: int, end: int, parts: int) -> Iterator[tuple[int, int]]:
    """[start, end) in at most `parts` stretches of equal length, without empty ones."""
    borders = np.unique(np.linspace(start, end, parts + 1).astype(np.int64)).tolist()
    yield from pairwise(borders)

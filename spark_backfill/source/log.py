"""Source `log`: reads the samples in the log. Each comes once, with the version that counts, or in all written
versions.

All versions are split by offsets. To find the version that counts, a task needs all records of its partition: these
tasks share the series of a partition.

It finds the first offsets with samples of a span, and the facts about the log that all tasks of a read need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_backfill.failures import quoted_errors
from spark_backfill.source.log_samples import LogQuery, NewestPart, OffsetsPart, read_part
from spark_backfill.source.narrowed import NarrowedReader, is_empty_plan
from spark_backfill.worker_log import worker_log
from tsdb.log.interface import METRICS, Log, Watermarks
from tsdb.log.meta import require_meta
from tsdb.log.records import first_records
from tsdb.model.errors import OutOfCoverage
from tsdb.model.time_set import TimeSet

SHARE_RECORDS = 100_000  # In a shorter range a second reader costs more than its core brings.


class LogSourceReader(NarrowedReader):
    def partitions(self) -> list[InputPartition]:
        """Parts up to the current end of the log. Raises OutOfCoverage (before_retention)."""
        with quoted_errors(), self._options.places.open_log() as log:
            times = times_of(log)
            marks = log.watermarks(METRICS, range(log.partitions(METRICS)))
            starts = first_offsets(
                log, marks, self._narrowing.span.start_ms, times, allow_holes=self._options.allow_holes
            )
            topic_id, each = log.topic_id(METRICS), max(self._options.splits // len(marks), 1)
            if not self._options.all_versions:
                ranges = {partition: (starts[partition], mark.high) for partition, mark in marks.items()}
                return list(newest_parts(topic_id, times.ahead_ms, ranges, each))
            return [
                OffsetsPart(topic_id, times.ahead_ms, partition, start, end)
                for partition, mark in marks.items()
                for start, end in even_stretches(starts[partition], mark.high, each)
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if is_empty_plan(partition):
            return
        assert isinstance(partition, OffsetsPart), f"no part of ours: {partition}"
        query = LogQuery(self._columns, self._narrowing, self._options.allow_holes, self._options.labels_bytes_max)
        with quoted_errors():
            yield from read_part(worker_log(self._options.places, partition.topic_id), partition, query)


def newest_parts(
    topic_id: str, ahead_ms: int, ranges: Mapping[int, tuple[int, int]], shares_max: int, from_ms: int | None = None
) -> Iterator[NewestPart]:
    """Parts for the versions that count in [first, end) of each partition, of samples at or after from_ms.

    Each share of a partition reads all its records twice, so a short range has one share.
    """
    for partition, (start, end) in ranges.items():
        shares = min(shares_max, -(-(end - start) // SHARE_RECORDS))
        for number in range(shares):
            yield NewestPart(topic_id, ahead_ms, partition, start, end, from_ms, number, shares)


def even_stretches(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """[start, end) in at most `parts` stretches of equal length, without empty ones."""
    return list(pairwise(np.unique(np.linspace(start, end, parts + 1).astype(np.int64)).tolist()))


def times_of(log: Log) -> TimeSet:
    """The time set of the log. Raises ConfigMismatch (meta)."""
    return require_meta(log).time_set


def first_offsets(
    log: Log, marks: Mapping[int, Watermarks], start_ms: int | None, times: TimeSet, *, allow_holes: bool = False
) -> dict[int, int]:
    """First offset of each partition with samples from start_ms on: a record's broker time is >= timestamp - ahead.

    None: the first offset of the log. Raises OutOfCoverage (before_retention) unless holes are allowed.
    """
    if start_ms is None:
        return {partition: mark.low for partition, mark in marks.items()}
    if not allow_holes:
        check_retention(log, marks, start_ms, times)
    found = log.offsets_for_times(METRICS, dict.fromkeys(marks, max(start_ms - times.ahead_ms, 0)))
    return {
        partition: mark.high if found[partition] is None else max(found[partition] or 0, mark.low)
        for partition, mark in marks.items()
    }


def check_retention(log: Log, marks: Mapping[int, Watermarks], start_ms: int, times: TimeSet) -> None:
    """Raises OutOfCoverage (before_retention) when a trimmed log may lack samples from start_ms on."""
    trimmed = {partition: mark.low for partition, mark in marks.items() if mark.low}
    for partition, record in first_records(log, METRICS, trimmed).items():
        whole_from_ms = None if record is None else record.broker_ms + 2 * times.ahead_ms
        if whole_from_ms is None or start_ms < whole_from_ms:
            raise OutOfCoverage(
                f"partition {partition} of the log is trimmed: it is whole from {whole_from_ms} ms on; requested"
                f" from {start_ms} ms: read older samples from history, or what is left here with the option"
                " allow_holes=true",
                reason="before_retention",
            )

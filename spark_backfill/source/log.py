"""Source `log`: reads the samples in the log. Each comes once, with the version that counts, or in all written
versions.

All versions are split by offsets. To find the version that counts, a task needs all records of its partition: these
tasks share the series of a partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_backfill.failures import quoted_errors
from spark_backfill.source.empty_plan import is_empty_plan
from spark_backfill.source.log_samples import LogQuery, NewestPart, OffsetsPart, read_part
from spark_backfill.source.log_starts import first_offsets, times_of
from spark_backfill.source.narrowed import NarrowedReader
from spark_backfill.worker_log import worker_log
from tsdb.log.interface import METRICS

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

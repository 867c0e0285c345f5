"""Stream: serves `spark.readStream.format("tsdb")` with the samples of the log as micro-batches.

The position is in the query's checkpoint: one next offset for each partition. A batch is two such positions, so a
repeated batch has the same rows. Spark plans in one Python process beside the driver, and reads in Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from spark_backfill.failures import quoted_errors
from spark_backfill.source.columns import SampleColumns
from spark_backfill.source.filters import Narrowing
from spark_backfill.source.log_samples import LogQuery, OffsetsPart, read_part
from spark_backfill.source.stream.offset import StreamOffset, stream_offset_of
from spark_backfill.source.stream.options import StreamOptions
from spark_backfill.source.stream.planner import StreamPlanner
from spark_backfill.worker_log import worker_log


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls one instance for offsets and parts, as long as the query lives, and others, in workers, for rows."""

    def __init__(self, options: StreamOptions, columns: SampleColumns) -> None:
        self._options = options
        self._columns = columns
        self._planner = StreamPlanner(options)

    def initialOffset(self) -> dict[str, Any]:
        """The offset before the first batch. It names no records; the end of the first batch records its start."""
        return StreamOffset().as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option max_records_per_batch. A row of Spark's limit is a record of the log here."""
        return ReadMaxRows(self._options.records_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The offset at the end of the next batch; `start` when nothing is new. Raises the errors of StreamPlanner."""
        with quoted_errors():
            before = stream_offset_of(start)
            records_max = None if isinstance(limit, ReadAllAvailable) else self._options.records_max
            if before.is_initial:
                return self._planner.first(records_max).as_json()
            after = self._planner.next(before, records_max)
            return start if after is before else after.as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the present end of the log. Later records are left to a later run."""
        with quoted_errors():
            self._planner.freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log at the last look. Spark derives from it how far the query is behind."""
        seen = self._planner.last_seen()
        return None if seen is None else seen.as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Parts of the batch. Raises the errors of StreamPlanner.parts."""
        with quoted_errors():
            return self._planner.parts(stream_offset_of(start), stream_offset_of(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one part, the same as the batch source has."""
        assert isinstance(partition, OffsetsPart), f"no part of ours: {partition}"
        reading = self._options.reading
        narrowing = Narrowing(reading.span, reading.matchers)
        query = LogQuery(self._columns, narrowing, reading.allow_holes, reading.labels_bytes_max)
        with quoted_errors():
            yield from read_part(worker_log(reading.places, partition.topic_id), partition, query)

    def stop(self) -> None:
        """Release the planner's connection."""
        self._planner.close()

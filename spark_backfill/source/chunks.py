"""Source `chunks`: the records of the chunks topic, one a row. Only the key is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_backfill.failures import quoted_errors
from spark_backfill.source.columns import ARROW_TS
from spark_backfill.source.narrowed import is_empty_plan
from spark_backfill.source.options import SourceOptions
from spark_backfill.source.rows import US_PER_MS
from spark_backfill.worker_log import batches_between
from tsdb.codec.chunk.key import ChunkKey, HoleKey, WindowKey, decode_key
from tsdb.history.rows import signed
from tsdb.log.interface import CHUNKS, LogRecord
from tsdb.model.errors import CorruptData, InvalidRequest

_COLUMNS: tuple[tuple[str, DataType, pa.DataType], ...] = (
    ("partition", IntegerType(), pa.int32()),
    ("offset", LongType(), pa.int64()),
    ("broker_ts", TimestampType(), ARROW_TS),
    ("what", StringType(), pa.string()),
    ("pack_id", LongType(), pa.int64()),
    ("window_start", TimestampType(), ARROW_TS),
    ("kind", StringType(), pa.string()),
    ("order", LongType(), pa.int64()),
    ("part", LongType(), pa.int64()),
    ("key", BinaryType(), pa.binary()),
    ("value", BinaryType(), pa.binary()),
)
CHUNK_SCHEMA = StructType([StructField(name, kind) for name, kind, _ in _COLUMNS])
_ARROW = {name: kind for name, _, kind in _COLUMNS}
BATCH_BYTES = 8 << 20


@dataclass
class ChunkOffsetsPart(InputPartition):
    """Records with offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int


class ChunksReader(DataSourceReader):
    """All records between the topic's first and last offset at planning time, superseded records included."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        unknown = [name for name in schema.names if name not in _ARROW]
        if unknown:
            raise InvalidRequest(f"source chunks has no column {', '.join(unknown)}", reason="bad_schema")
        self._options = options
        self._names = list(schema.names)
        self._partition: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark chose the name.
        """Take a condition on the partition; leave all others to Spark."""
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("partition",):
                self._partition = int(each.value)
            else:
                yield each

    def partitions(self) -> list[InputPartition]:
        """Parts: each partition of the topic in stretches of equal length."""
        with quoted_errors(), self._options.places.open_log() as log:
            marks = log.watermarks(CHUNKS, range(log.partitions(CHUNKS)))
        each = max(self._options.splits // len(marks), 1)
        return [
            ChunkOffsetsPart(partition, start, min(start + step, mark.high))
            for partition, mark in marks.items()
            if self._partition in (None, partition)
            for step in [max(-(-(mark.high - mark.low) // each), 1)]
            for start in range(mark.low, mark.high, step)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if is_empty_plan(partition):
            return
        assert isinstance(partition, ChunkOffsetsPart), f"no part of ours: {partition}"
        with quoted_errors(), self._options.places.open_log() as log:
            for batch in batches_between(log, CHUNKS, partition.partition, partition.start, partition.end):
                yield from self._batches(map(batch.record, range(len(batch.offsets))), partition.partition)

    def _batches(self, records: Iterable[LogRecord], partition: int) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, object]] = []
        size = 0
        for record in records:
            rows.append(_row(record, partition))
            size += len(record.value or b"")
            if size >= BATCH_BYTES:
                yield self._batch(rows)
                rows, size = [], 0
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[dict[str, object]]) -> pa.RecordBatch:
        arrays = [pa.array([row.get(name) for row in rows], _ARROW[name]) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, names=self._names)


def _row(record: LogRecord, partition: int) -> dict[str, object]:
    return {
        "partition": partition,
        "offset": record.offset,
        "broker_ts": record.broker_ms * US_PER_MS,
        "key": record.key,
        "value": record.value,
        **_named(record.key or b""),
    }


def _named(key: bytes) -> dict[str, object]:
    """Columns decoded from a key. Column `what` is "corrupt" when the key cannot be decoded."""
    try:
        decoded = decode_key(key)
    except CorruptData:
        return {"what": "corrupt"}
    match decoded:
        case ChunkKey():
            return {
                "what": "chunk",
                "pack_id": signed(decoded.pack_id),
                "window_start": decoded.window_start_ms * US_PER_MS,
                "kind": decoded.kind.name.lower(),
                "order": decoded.order,
                "part": decoded.part,
            }
        case WindowKey():
            return {"what": "window", "window_start": decoded.window_start_ms * US_PER_MS}
        case HoleKey():
            return {"what": "hole", "pack_id": signed(decoded.pack_id)}
        case _:
            return {"what": "progress"}

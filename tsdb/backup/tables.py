"""Tables of a backup: converts rows of history and records of topics to Arrow columns, and back. Pure.

Layout: docs/formats/backup.md, version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import ChunkRow, HistoryHole
from tsdb.log.interface import LogRecord

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class BackupTable:
    """One table. bounds: the column whose lowest and highest value the manifest states. dense: columns of compressed
    bytes."""

    name: str
    schema: pa.Schema
    bounds: str | None = None
    dense: tuple[str, ...] = ()

    def compression(self) -> dict[str, str]:
        """The compression codec of each column."""
        return {name: "none" if name in self.dense else "zstd" for name in self.schema.names}

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Rows, at least one, as columns."""
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), self.schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)


CHUNKS = BackupTable(
    "chunks",
    pa.schema(
        [
            ("pack_id", pa.uint64()),
            ("window_start_ms", pa.int64()),
            ("order", pa.int64()),
            ("kind", pa.uint8()),
            ("part", pa.uint32()),
            ("value", pa.binary()),
        ]
    ),
    "window_start_ms",
    ("value",),
)
SERIES = BackupTable(
    "series",
    pa.schema(
        [
            ("series_id", pa.uint64()),
            ("epoch", pa.int32()),
            ("pack_id", pa.uint64()),
            ("partition", pa.int32()),
            ("labels", pa.binary()),
        ]
    ),
    "epoch",
)
HOLES = BackupTable(
    "holes",
    pa.schema(
        [
            ("partition", pa.int32()),
            ("pack_id", pa.uint64()),
            ("start_ms", pa.int64()),
            ("end_ms", pa.int64()),
            ("reason", pa.string()),
            ("record_offset", pa.int64()),
            ("accepted", pa.bool_()),
        ]
    ),
)
TOPIC_PREFIX = "topic."


def topic_table(topic: str) -> BackupTable:
    """The table of one topic's records."""
    schema = pa.schema(
        [
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("broker_ms", pa.int64()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", _HEADERS),
        ]
    )
    return BackupTable(TOPIC_PREFIX + topic, schema, "offset")


def chunk_columns(row: ChunkRow) -> tuple[Any, ...]:
    """A row of CHUNKS."""
    key = row.key
    return key.pack_id, key.window_start_ms, key.order, int(key.kind), key.part, row.value


def chunk_rows(table: pa.Table) -> Iterator[ChunkRow]:
    """The rows of columns of CHUNKS."""
    for pack_id, window_start_ms, order, kind, part, value in _rows(table):
        yield ChunkRow(ChunkKey(pack_id, window_start_ms, Kind(kind), order, part), value)


def series_columns(announcement: Announcement, partition: int) -> tuple[Any, ...]:
    """A row of SERIES."""
    return announcement.series_id, announcement.epoch, announcement.pack_id, partition, announcement.canonical


def series_rows(table: pa.Table) -> Iterator[tuple[Announcement, int]]:
    """The rows of columns of SERIES: announcement and partition."""
    for series_id, epoch, pack_id, partition, canonical in _rows(table):
        yield Announcement(series_id, epoch, pack_id, canonical), partition


def hole_columns(one: HistoryHole) -> tuple[Any, ...]:
    """A row of HOLES."""
    hole = one.hole
    span = hole.start_ms, hole.end_ms
    return hole.partition, hole.pack_id, *span, hole.reason, hole.record_offset, one.accepted


def hole_rows(table: pa.Table) -> Iterator[HistoryHole]:
    """The rows of columns of HOLES."""
    for *place, reason, record_offset, accepted in _rows(table):
        partition, pack_id, start_ms, end_ms = place
        yield HistoryHole(HoleRecord(partition, pack_id, start_ms, end_ms, reason, record_offset), accepted)


def record_columns(partition: int, record: LogRecord) -> tuple[Any, ...]:
    """A row of a topic's table."""
    headers = [{"name": name, "value": value} for name, value in record.headers]
    return partition, record.offset, record.broker_ms, record.key, record.value, headers


def record_rows(table: pa.Table) -> Iterator[tuple[int, LogRecord]]:
    """The rows of a topic's columns: partition and record."""
    for partition, offset, broker_ms, key, value, headers in _rows(table):
        pairs = [(one["name"], one["value"]) for one in headers or ()]
        yield partition, LogRecord(offset, broker_ms, key, value, pairs)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)

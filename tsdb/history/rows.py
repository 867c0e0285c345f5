"""Rows: converts ids, times, chunks, holes and series to the columns of rows, and back. All stores share it. Pure.

Layout: docs/formats/cassandra.md. Ids are unsigned here and signed in every database, with the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import ChunkRow, HistoryHole, RowSplit, SeriesIndexRows, SeriesPiece, WindowRange
from tsdb.model.errors import CorruptData, InvalidRequest

# A row key has one pack for a month: 180 windows of 4 h. The window length divides the month, so no window is in two
# months.
MONTH_MS = 30 * 24 * 3600 * 1000
# Row keys for the series of one metric and epoch. With a million series each row key has about 40 MiB.
SERIES_BUCKETS = 8
KEY_MIN = -(1 << 63)
KEY_MAX = (1 << 63) - 1

_BIAS = 1 << 64

PART_MAX = (1 << 32) - 1
MONTH_MAX = (1 << 31) - 1

KeyColumns = tuple[int, int, int, int, int]  # pack_id (signed), window_start, order, kind, part.
Row = tuple[Any, ...]  # The columns of the key, and the value.

HoleColumns = tuple[int, int, int, int, int, str | None, int | bool | None]  # The key, reason, accepted.


def signed(number: int) -> int:
    """The int64 with the bits of a uint64."""
    return number - _BIAS if number > KEY_MAX else number


def unsigned(number: int) -> int:
    """The uint64 with the bits of an int64."""
    return number + _BIAS if number < 0 else number


def month_of(window_start_ms: int) -> int:
    """Number of the month that holds a window."""
    return window_start_ms // MONTH_MS


def months_of(windows: WindowRange) -> Iterator[int]:
    """Months with a window in the range, ascending."""
    if windows.start_ms < windows.end_ms:
        yield from range(month_of(windows.start_ms), month_of(windows.end_ms - 1) + 1)


def bucket_of(series_id: int) -> int:
    """Bucket of a series among those of its metric."""
    return series_id % SERIES_BUCKETS


def even_splits(count: int) -> list[RowSplit]:
    """All rows as `count` splits of equal size, in order."""
    assert count > 0, f"got a count of {count} splits"
    borders = [KEY_MIN + (_BIAS - 1) * at // count for at in range(count + 1)]
    return [RowSplit(after, through) for after, through in pairwise(borders)]


def chunk_key_columns(key: ChunkKey) -> KeyColumns:
    """The columns of a key. Raises InvalidRequest (key_out_of_range) for a field that does not fit its column."""
    fits = (
        0 <= key.pack_id <= 2 * KEY_MAX + 1
        and -MONTH_MAX <= month_of(key.window_start_ms) <= MONTH_MAX
        and 0 <= key.order <= KEY_MAX
        and 0 <= key.part <= PART_MAX
    )
    if not fits:
        raise InvalidRequest(f"{key} does not fit the columns of a row", reason="key_out_of_range")
    return signed(key.pack_id), key.window_start_ms, key.order, int(key.kind), key.part


def key_of(columns: Row) -> ChunkKey:
    """The key in the columns of a row. Raises CorruptData (corrupt_row) for columns that are not the key of a chunk."""
    pack_id, window_start_ms, order, kind, part = columns
    try:
        known = Kind(kind)
    except ValueError:
        known = None
    if known is None or order < 0 or part < 0:
        raise CorruptData(
            f"history has a row with pack {unsigned(pack_id):016x}, window {window_start_ms}, order {order}, "
            f"kind {kind}, part {part}: no chunk's key",
            reason="corrupt_row",
        )
    return ChunkKey(unsigned(pack_id), window_start_ms, known, order, part)


def pieces_of(rows: Iterable[Row]) -> list[list[ChunkRow]]:
    """Group rows into pieces of one pack each, in the same order. Raises CorruptData (corrupt_row)."""
    chunks = (ChunkRow(key_of(row[:5]), row[5] or b"") for row in rows)
    return [list(piece) for _, piece in groupby(chunks, key=lambda chunk: chunk.key.pack_id)]


def check_size(key: ChunkKey, value: bytes, part_bytes_max: int) -> None:
    """Raises InvalidRequest (chunk_too_large)."""
    if len(value) > part_bytes_max:
        raise InvalidRequest(
            f"{key} has {len(value)} bytes; limit is {part_bytes_max}",
            reason="chunk_too_large",
            limit=part_bytes_max,
            asked=len(value),
        )


def key_columns_of(hole: HoleRecord) -> KeyColumns:
    """The columns of the row's key, which are equal for the same hole."""
    return hole.partition, hole.start_ms, hole.end_ms, signed(hole.pack_id), hole.record_offset


def holes_of(
    rows: Iterable[HoleColumns], partitions: Collection[int] | None, start_ms: int, end_ms: int
) -> list[HistoryHole]:
    """The holes in rows of these partitions (None: any) that touch [start_ms, end_ms), ordered by key."""
    holes = [
        HistoryHole(HoleRecord(partition, unsigned(pack_id), start, end, reason or "", record_offset), bool(accepted))
        for partition, start, end, pack_id, record_offset, reason, accepted in sorted(rows, key=lambda row: row[:5])
        if start < end_ms and end > start_ms
    ]
    return [one for one in holes if partitions is None or one.hole.partition in partitions]


def series_index_rows(rows: Iterable[tuple[int, int | None, int | None, bytes | None]]) -> SeriesIndexRows:
    """Rows from tuples (series_id, pack_id, partition, labels), ids signed, in any order. Raises CorruptData
    (corrupt_row)."""
    ids: list[int] = []
    packs: list[int] = []
    partitions: list[int] = []
    labels: list[bytes] = []
    for series_id, pack_id, partition, canonical in rows:
        if pack_id is None or partition is None or canonical is None:
            raise _half_a_row(series_id)
        ids.append(series_id)
        packs.append(pack_id)
        partitions.append(partition)
        labels.append(canonical)
    series_ids = np.array(ids, np.int64).view(np.uint64)
    order = np.argsort(series_ids)
    return SeriesIndexRows(
        series_ids[order],
        np.array(packs, np.int64).view(np.uint64)[order],
        np.array(partitions, np.int32)[order],
        [labels[at] for at in order.tolist()],
    )


def series_piece(rows: Iterable[tuple[int, int, int | None, int | None, bytes | None]]) -> SeriesPiece:
    """A piece from tuples (epoch, series_id, pack_id, partition, labels), ids signed, in this order. Raises CorruptData
    (corrupt_row)."""
    piece: SeriesPiece = []
    for epoch, series_id, pack_id, partition, canonical in rows:
        if pack_id is None or partition is None or canonical is None:
            raise _half_a_row(series_id)
        piece.append((Announcement(unsigned(series_id), epoch, unsigned(pack_id), canonical), partition))
    return piece


def _half_a_row(series_id: int) -> CorruptData:
    return CorruptData(f"history has half a row of series {unsigned(series_id):016x}", reason="corrupt_row")

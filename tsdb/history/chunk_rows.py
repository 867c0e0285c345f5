"""Chunk rows: a chunk's key to the columns of its row, and back. The same in every store. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.interface import ChunkRow
from tsdb.history.row_keys import TOKEN_MAX, month_of, signed, unsigned
from tsdb.model.errors import CorruptData, InvalidRequest

PART_MAX = (1 << 32) - 1
MONTH_MAX = (1 << 31) - 1

KeyColumns = tuple[int, int, int, int, int]  # pack_id (signed), window_start, order, kind, part.
Row = tuple[Any, ...]  # The key columns, and the value.


def chunk_key_columns(key: ChunkKey) -> KeyColumns:
    """The key's columns. Raises InvalidRequest (key_out_of_range) for a field that does not fit its column."""
    fits = (
        0 <= key.pack_id <= 2 * TOKEN_MAX + 1
        and -MONTH_MAX <= month_of(key.window_start_ms) <= MONTH_MAX
        and 0 <= key.order <= TOKEN_MAX
        and 0 <= key.part <= PART_MAX
    )
    if not fits:
        raise InvalidRequest(f"{key} does not fit the columns of a row", reason="key_out_of_range")
    return signed(key.pack_id), key.window_start_ms, key.order, int(key.kind), key.part


def key_of(columns: Row) -> ChunkKey:
    """The key of a row's columns. Raises CorruptData (corrupt_row) for columns that are no chunk's key."""
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
    """Rows in pieces of one pack each, order kept. Raises CorruptData (corrupt_row)."""
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

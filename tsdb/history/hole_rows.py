"""Hole rows: a hole to the columns of its row, and back. The same in every store. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.interface import HistoryHole
from tsdb.history.row_keys import signed, unsigned

KeyColumns = tuple[int, int, int, int, int]  # partition, start_ms, end_ms, pack_id (signed), record_offset.
HoleColumns = tuple[int, int, int, int, int, str | None, int | bool | None]  # The key, reason, accepted.


def key_columns_of(hole: HoleRecord) -> KeyColumns:
    """The columns of the row's key: equal for the same hole."""
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

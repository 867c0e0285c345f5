"""Series index rows: a store's rows of series to sorted arrays, and to announcements."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import SeriesIndexRows, SeriesPiece
from tsdb.history.row_keys import unsigned
from tsdb.model.errors import CorruptData


def series_index_rows(rows: Iterable[tuple[int, int | None, int | None, bytes | None]]) -> SeriesIndexRows:
    """From (series_id, pack_id, partition, labels), ids signed, in any order. Raises CorruptData (corrupt_row)."""
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
    """From (epoch, series_id, pack_id, partition, labels), ids signed; order kept. Raises CorruptData (corrupt_row)."""
    piece: SeriesPiece = []
    for epoch, series_id, pack_id, partition, canonical in rows:
        if pack_id is None or partition is None or canonical is None:
            raise _half_a_row(series_id)
        piece.append((Announcement(unsigned(series_id), epoch, unsigned(pack_id), canonical), partition))
    return piece


def _half_a_row(series_id: int) -> CorruptData:
    return CorruptData(f"history has half a row of series {unsigned(series_id):016x}", reason="corrupt_row")

"""The contents of any history: samples after the merge, and one checksum of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment, decode_chunk
from tsdb.history.interface import ChunkRow, ChunkStore


def checksum_of_store(store: ChunkStore) -> str:
    """Checksum of all samples, read by whole token ranges."""
    rows = (row for split in store.row_splits(4) for piece in store.scan(split) for row in piece)
    return _checksum(*_columns(rows))


def checksum_of_files(folder: Path) -> str:
    """Checksum of all samples of a Parquet sink."""
    table = ds.dataset(folder / "samples", format="parquet", partitioning="hive").to_table()
    return _checksum(*(table[name].to_numpy() for name in ("series_id", "ts_ms", "value", "order")))


def _columns(rows: Iterable[ChunkRow]) -> tuple[NDArray[np.generic], ...]:
    fragments: list[Fragment] = [decode_chunk(row.value) for row in rows]
    if not fragments:
        return np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
    return (
        np.concatenate([np.repeat(one.series_id, np.diff(one.sample_start)) for one in fragments]),
        np.concatenate([one.ts_ms for one in fragments]),
        np.concatenate([one.value for one in fragments]),
        np.concatenate([one.order for one in fragments]),
    )


def _checksum(*columns: NDArray[np.generic]) -> str:
    """Value and order of the sample with the highest order, for each (series, time) in ascending order."""
    series_id, ts_ms, value, order = columns
    rank = np.lexsort((order, ts_ms, series_id))
    series_id, ts_ms, value, order = (column[rank] for column in (series_id, ts_ms, value, order))
    last = np.ones(len(rank), np.bool_)
    last[:-1] = (series_id[1:] != series_id[:-1]) | (ts_ms[1:] != ts_ms[:-1])
    digest = hashlib.sha256(str(int(last.sum())).encode())
    for column in (series_id, ts_ms, value, order):
        digest.update(np.ascontiguousarray(column[last]).tobytes())
    return digest.hexdigest()

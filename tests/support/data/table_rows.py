"""Iceberg tables for tests: made in a folder, and read as the dicts that the twins of fragments use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from support.oracles.fragment_twin import merged_twin, samples_of
from tsdb.codec.chunk.chunk import Fragment, decode_chunk
from tsdb.history.iceberg.catalog import TableSettings, create_table, load_table, open_catalog
from tsdb.history.iceberg.state import LogCut, TableState
from tsdb.history.interface import ChunkRow
from tsdb.model.labels import canonical_labels

NAME = "tsdb.samples"
TOPIC_ID, CHUNKS_ID = "log-1", "chunks-1"
Rows = dict[tuple[int, int], tuple[int, int]]  # (series_id, ts_ms): (order, bits of the value)


def settings_in(folder: Path) -> TableSettings:
    """A catalog and its files in this folder."""
    return TableSettings(f"sqlite:///{folder}/catalog.db", name=NAME)


def new_table(catalog: Catalog, buckets: int = 3) -> Table:
    """The table, just made."""
    assert create_table(catalog, NAME, buckets)
    return load_table(catalog, NAME)


def reopened(folder: Path) -> Table:
    """The table as another process sees it."""
    with open_catalog(settings_in(folder)) as catalog:
        return load_table(catalog, NAME)


def labels_of(series_id: int) -> bytes:
    """Labels of a random series, seven metrics in all."""
    return canonical_labels({"__name__": f"m{series_id % 7}", "id": str(series_id), "job": f"j{series_id % 3}"})


def known_labels(series_ids: Iterable[int]) -> list[bytes | None]:
    """`labels` of an emission, where each series was announced."""
    return [labels_of(one) for one in series_ids]


def state(emission: int, keeper: str = "k") -> TableState:
    """A state that differs with its emission."""
    cut = {0: LogCut(100 * emission, 1_000 * emission)}
    return TableState(emission, keeper, TOPIC_ID, CHUNKS_ID, {0: 10 * emission}, cut)


def fragments(rows: Iterable[ChunkRow]) -> list[Fragment]:
    return [decode_chunk(row.value) for row in rows]


def expected(some: Iterable[Fragment]) -> Rows:
    """The right rows: of each (series, timestamp) the sample with the highest order."""
    return merged_twin(samples_of(one) for one in some)


def rows_of(table: Table) -> Rows:
    """The rows of a reader that knows nothing of orders. Asserts that each (series, timestamp) is there once, with the
    labels of its series."""
    return rows_in(table.scan().to_arrow())


def rows_in(found: pa.Table) -> Rows:
    series = found["series_id"].to_numpy().view(np.uint64).tolist()
    ts_ms = (found["ts"].cast(pa.int64()).to_numpy() // 1000).tolist()
    bits = found["value"].to_numpy().view(np.uint64).tolist()
    rows = {
        (one, at): (order, value)
        for one, at, order, value in zip(series, ts_ms, found["order"].to_pylist(), bits, strict=True)
    }
    assert len(rows) == len(found), "a (series, timestamp) is there twice"
    of_series = zip(series, found["metric"].to_pylist(), found["labels"].to_pylist(), strict=True)
    for one, metric, labels in {(a, b, tuple(c)) for a, b, c in of_series}:
        assert canonical_labels([("__name__", metric), *labels]) == labels_of(one)
    return rows

"""Series table: builds labels by series id as Arrow columns, once for all rows of a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.source.columns import LABELS
from tsdb.model.labels import parse_labels

ABSENT = -1
Pairs = tuple[tuple[str, str], ...]


class ArrowLabels(Protocol):
    """Labels by series id, as Arrow columns."""

    def find(self, series_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each id, int64 (n,); ABSENT for an id that the table does not have."""

    def labels(self, of: pa.Field, rows: NDArray[np.int64]) -> pa.Array:
        """Column `of` for these rows: `labels`, a map of text, or one label as text, null where it is absent."""


class SeriesLabels:
    """Distinct series and their canonical labels."""

    def __init__(self, series_ids: NDArray[np.uint64], labels: Sequence[bytes]) -> None:
        """series_ids: uint64 (s,), distinct. labels: canonical labels of each, in the same order."""
        order = np.argsort(series_ids, kind="stable")
        self.series_ids: NDArray[np.uint64] = series_ids[order]
        self._labels = [labels[at] for at in order.tolist()]
        self._columns: dict[str, pa.Array] = {}  # Built at first use; a table serves one query.

    def __len__(self) -> int:
        return len(self._labels)

    def find(self, series_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each id, int64 (n,); ABSENT for an id that the table does not have."""
        at = np.searchsorted(self.series_ids, series_ids)
        at[at == len(self)] = 0
        found = self.series_ids[at] == series_ids if len(self) else np.zeros(len(series_ids), np.bool_)
        return np.where(found, at, ABSENT)

    def labels(self, of: pa.Field, rows: NDArray[np.int64]) -> pa.Array:
        """Column `of` for these rows: `labels`, a map of text, or one label as text, null where it is absent."""
        if of.name not in self._columns:
            self._columns[of.name] = label_arrays(of, self._labels)
        return self._columns[of.name].take(pa.array(rows))


def label_arrays(of: pa.Field, labels: Sequence[bytes]) -> pa.Array:
    """The column `of`, with one row for each of these canonical labels."""
    pairs = map(parse_labels, labels)
    return _maps(list(pairs), of.type) if of.name == LABELS else _texts(pairs, of.name)


def _maps(pairs: Sequence[Pairs], of: pa.DataType) -> pa.Array:
    starts = np.cumsum([0, *map(len, pairs)]).astype(np.int32)
    keys = pa.array([name for each in pairs for name, _ in each], pa.string())
    values = pa.array([value for each in pairs for _, value in each], pa.string())
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), keys, values, type=of)


def _texts(pairs: Iterable[Pairs], name: str) -> pa.Array:
    return pa.array([dict(each).get(name) for each in pairs], pa.string())


def join_tables(parts: Iterable[tuple[NDArray[np.uint64], Sequence[bytes]]]) -> SeriesLabels:
    """Join several tables (series ids, canonical labels) into one. A series may be in more than one of them."""
    ids: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    labels: list[bytes] = []
    for series_ids, canonical in parts:
        ids.append(series_ids)
        labels += canonical
    distinct, first = np.unique(np.concatenate(ids), return_index=True)
    return SeriesLabels(distinct, [labels[at] for at in first.tolist()])

"""Series table: labels by series id, as the columns that rows take them from. Built once for all rows of a task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.source.columns import LABELS
from tsdb.model.labels import parse_labels

ABSENT = -1


class SeriesTable:
    """Distinct series with their canonical labels."""

    def __init__(self, series_ids: NDArray[np.uint64], labels: Sequence[bytes]) -> None:
        """series_ids: uint64 (s,), distinct. labels: canonical, one of each."""
        order = np.argsort(series_ids, kind="stable")
        self.series_ids: NDArray[np.uint64] = series_ids[order]
        self._labels = [labels[at] for at in order.tolist()]
        self._columns: dict[str, pa.Array] = {}  # Made when first asked for; a table is of one query.

    def __len__(self) -> int:
        return len(self._labels)

    def find(self, series_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each id, int64 (n,); ABSENT where it is not here."""
        at = np.searchsorted(self.series_ids, series_ids)
        at[at == len(self)] = 0
        found = self.series_ids[at] == series_ids if len(self) else np.zeros(len(series_ids), np.bool_)
        return np.where(found, at, ABSENT)

    def only(self, series_ids: Iterable[int]) -> SeriesTable:
        """Those of these series that are here."""
        kept = np.flatnonzero(np.isin(self.series_ids, np.array(sorted(series_ids), np.uint64)))
        return SeriesTable(self.series_ids[kept], [self._labels[at] for at in kept.tolist()])

    def labels(self, of: pa.Field, rows: NDArray[np.int64]) -> pa.Array:
        """Of these rows the column `labels`, a map of text, or that of one label, null where there is none."""
        if of.name not in self._columns:
            self._columns[of.name] = self._maps(of.type) if of.name == LABELS else self._texts(of.name)
        return self._columns[of.name].take(pa.array(rows))

    def _maps(self, of: pa.DataType) -> pa.Array:
        pairs = list(map(parse_labels, self._labels))
        starts = np.cumsum([0, *map(len, pairs)]).astype(np.int32)
        keys = pa.array([name for each in pairs for name, _ in each], pa.string())
        values = pa.array([value for each in pairs for _, value in each], pa.string())
        return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), keys, values, type=of)

    def _texts(self, name: str) -> pa.Array:
        return pa.array([dict(parse_labels(each)).get(name) for each in self._labels], pa.string())


def joined(parts: Iterable[tuple[NDArray[np.uint64], Sequence[bytes]]]) -> SeriesTable:
    """Of several parts, in which a series may come again."""
    ids: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    labels: list[bytes] = []
    for series_ids, canonical in parts:
        ids.append(series_ids)
        labels += canonical
    distinct, first = np.unique(np.concatenate(ids), return_index=True)
    return SeriesTable(distinct, [labels[at] for at in first.tolist()])

"""Columns hold the samples of many steps of rules, without an object for each sample. A storage reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.rules.alerts import Labels
from tsdb.rules.memory import label_filter

SELECTIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """Series, each once, with their samples. labels: with the name. The samples of series i, ascending in time, are
    [starts[i], starts[i + 1]), at least one. starts: int64 (series + 1,). ts_ms: int64. values: float64."""

    labels: Sequence[Labels]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ts_ms)

    @staticmethod
    def of(
        labels: Sequence[Labels], ts_ms: NDArray[np.int64], values: NDArray[np.float64], present: NDArray[np.bool_]
    ) -> ResultColumns:
        """Series with a value at some of the times. values, present: (series, times)."""
        counts = present.sum(axis=1)
        kept = np.flatnonzero(counts)
        starts = np.concatenate(([0], np.cumsum(counts[kept]))).astype(np.int64)
        times = np.broadcast_to(ts_ms, present.shape)[present]
        return ResultColumns([labels[row] for row in kept.tolist()], starts, times, values[present])

    @staticmethod
    def one(labels: Labels, ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> ResultColumns:
        """One series, or none where there is no sample."""
        if not len(ts_ms):
            return ResultColumns((), np.zeros(1, np.int64), ts_ms, values)
        return ResultColumns((labels,), np.array([0, len(ts_ms)], np.int64), ts_ms, values)

    def row(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Times and values of a series."""
        part = slice(int(self.starts[row]), int(self.starts[row + 1]))
        return self.ts_ms[part], self.values[part]

    def rows(self) -> Iterator[tuple[Labels, NDArray[np.int64], NDArray[np.float64]]]:
        """Labels, times and values of each series."""
        for row, labels in enumerate(self.labels):
            yield (labels, *self.row(row))


def joined_columns(parts: Iterable[ResultColumns], start_ms: int | None = None) -> ResultColumns:
    """The samples of all parts from start_ms on. Of samples of one series and time that of the last part counts."""
    found: dict[Labels, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {}
    for part in parts:
        for labels, ts_ms, values in part.rows():
            found.setdefault(labels, []).append((ts_ms, values))
    kept = {labels: _from(_joined(pieces), start_ms) for labels, pieces in found.items()}
    kept = {labels: piece for labels, piece in kept.items() if len(piece[0])}
    return ResultColumns(
        list(kept),
        np.cumsum([0, *(len(ts_ms) for ts_ms, _ in kept.values())], dtype=np.int64),
        np.concatenate([np.empty(0, np.int64), *(ts_ms for ts_ms, _ in kept.values())]),
        np.concatenate([np.empty(0, np.float64), *(values for _, values in kept.values())]),
    )


def _from(
    piece: tuple[NDArray[np.int64], NDArray[np.float64]], start_ms: int | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    first = 0 if start_ms is None else int(np.searchsorted(piece[0], start_ms))
    return piece[0][first:], piece[1][first:]


def _joined(
    pieces: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if len(pieces) == 1:
        return pieces[0]
    ts_ms, values = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
    if (ts_ms[1:] > ts_ms[:-1]).all():
        return ts_ms, values
    order = np.argsort(ts_ms, kind="stable")
    ts_ms, values = ts_ms[order], values[order]
    last = np.append(ts_ms[1:] != ts_ms[:-1], True)
    return ts_ms[last], values[last]


class ColumnStorage:
    """Implements Storage over columns. A later sample of the same series and time replaces the earlier one."""

    def __init__(self) -> None:
        self._pieces: dict[Labels, list[tuple[NDArray[np.int64], NDArray[np.float64]]]] = {}
        self._selections: dict[tuple[Matcher, ...], list[Labels]] = {}

    def add(self, columns: ResultColumns) -> None:
        """Take the samples of all series."""
        for labels, ts_ms, values in columns.rows():
            if labels not in self._pieces:
                self._pieces[labels] = []
                self._selections.clear()
            self._pieces[labels].append((ts_ms, values))

    def forget(self, before_ms: int) -> None:
        """Forget the samples before a time."""
        kept = {labels: _from(_joined(pieces), before_ms) for labels, pieces in self._pieces.items()}
        self._pieces = {labels: [piece] for labels, piece in kept.items() if len(piece[0])}
        self._selections.clear()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """As Storage.select. Series come in the order of their labels."""
        found = []
        for labels in self._selected(tuple(matchers)):
            pieces = self._pieces[labels]
            if len(pieces) > 1:
                pieces[:] = [_joined(pieces)]
            ts_ms, values = pieces[0]
            first, end = np.searchsorted(ts_ms, start_ms), np.searchsorted(ts_ms, end_ms, side="right")
            if first < end:
                found.append(ResultColumns.one(labels, ts_ms[first:end], values[first:end]))
        joined = joined_columns(found)
        return StoredSeries(list(map(canonical_labels, joined.labels)), joined.starts, joined.ts_ms, joined.values)

    def _selected(self, matchers: tuple[Matcher, ...]) -> list[Labels]:
        found = self._selections.get(matchers)
        if found is None:
            if len(self._selections) >= SELECTIONS_MAX:
                self._selections.clear()
            found = self._selections[matchers] = sorted(filter(label_filter(matchers), self._pieces))
        return found

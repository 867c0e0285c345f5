"""Memory storage keeps samples of series in lists: for evaluations without a store, and beside one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.histograms import HistogramColumns, joined_histograms
from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.rules.alerts import Labels
from tsdb.rules.values import RuleValue
from tsdb.selector.selectors import METRIC_NAME, matches

SELECTIONS_MAX = 10_000  # Remembered selections; all are forgotten when there are more, or when a series is new.


class _Column:
    """Samples of a series, ascending in time. histograms: those of the samples that are histograms, by time; the value
    of such a sample is the sum."""

    __slots__ = ("canonical", "histograms", "labels", "ts_ms", "values")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.canonical = canonical_labels(labels)
        self.ts_ms: list[int] = []
        self.values: list[float] = []
        self.histograms: dict[int, HistogramColumns] = {}

    def add(self, ts_ms: int, added: RuleValue) -> None:
        """A later value of the same time replaces the earlier one."""
        if isinstance(added, HistogramColumns):
            self.histograms[ts_ms], value = added, float(added.sums[0])
        else:
            value = added
            if self.histograms:
                self.histograms.pop(ts_ms, None)
        if not self.ts_ms or ts_ms > self.ts_ms[-1]:
            self.ts_ms.append(ts_ms)
            self.values.append(value)
            return
        place = bisect_left(self.ts_ms, ts_ms)
        if self.ts_ms[place] != ts_ms:
            self.ts_ms.insert(place, ts_ms)
            self.values.insert(place, value)
        self.values[place] = value


class MemoryStorage:
    """Samples by series and time. A series without samples in the range is left out of an answer.

    visible_until_ms: later samples are left out, until it grows; None: all samples are there.
    """

    def __init__(self) -> None:
        self.visible_until_ms: int | None = None
        self._columns: dict[Labels, _Column] = {}
        self._by_name: dict[str, list[_Column]] = {}
        self._selections: dict[tuple[Matcher, ...], list[_Column]] = {}

    def add(self, labels: Labels, samples: Iterable[tuple[int, RuleValue]]) -> None:
        """Samples of a series, as time in milliseconds and value."""
        column = self._columns.get(labels)
        if column is None:
            column = self._columns[labels] = _Column(labels)
            self._by_name.setdefault(dict(labels).get(METRIC_NAME, ""), []).append(column)
            self._selections.clear()
        for ts_ms, value in samples:
            column.add(ts_ms, value)

    def clear(self) -> None:
        """Remove all series and samples."""
        self._columns.clear()
        self._by_name.clear()
        self._selections.clear()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """As Storage.select. Series come in the order of their labels."""
        if self.visible_until_ms is not None:
            end_ms = min(end_ms, self.visible_until_ms)
        labels: list[bytes] = []
        starts: list[int] = [0]
        ts_ms: list[int] = []
        values: list[float] = []
        histograms: dict[int, HistogramColumns] = {}  # The key is the index of the sample.
        for column in self._selected(tuple(matchers)):
            start, end = bisect_left(column.ts_ms, start_ms), bisect_right(column.ts_ms, end_ms)
            if start < end:
                if column.histograms:
                    for place in range(start, end):
                        if column.ts_ms[place] in column.histograms:
                            histograms[len(ts_ms) + place - start] = column.histograms[column.ts_ms[place]]
                labels.append(column.canonical)
                ts_ms += column.ts_ms[start:end]
                values += column.values[start:end]
                starts.append(len(ts_ms))
        found = StoredSeries(labels, _integers(starts), _integers(ts_ms), np.array(values, np.float64))
        if not histograms:
            return found
        of = np.full(len(ts_ms), -1, np.int64)
        of[list(histograms)] = np.arange(len(histograms))
        return replace(found, details=SampleDetails(None, joined_histograms([*histograms.values()]), of))

    def _selected(self, matchers: tuple[Matcher, ...]) -> list[_Column]:
        found = self._selections.get(matchers)
        if found is None:
            if len(self._selections) >= SELECTIONS_MAX:
                self._selections.clear()
            holds = label_filter(matchers)
            found = [column for column in self._candidates(matchers) if holds(column.labels)]
            found.sort(key=lambda column: column.labels)
            self._selections[matchers] = found
        return found

    def _candidates(self, matchers: Sequence[Matcher]) -> Iterable[_Column]:
        names = [one.value for one in matchers if one.name == METRIC_NAME and one.type is MatchType.EQUAL]
        return self._by_name.get(names[0], ()) if names else self._columns.values()


class OverlaidStorage:
    """Implements Storage with the samples of another storage and newer ones in memory, which win at equal times.

    A rule reads the results of the rules before it in its group here: the log does not have them yet.
    """

    def __init__(self, base: Storage, newer: Storage) -> None:
        self._base = base
        self._newer = newer

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """Implements Storage.select: the series of either storage, each once."""
        base, newer = (storage.select(matchers, start_ms, end_ms) for storage in (self._base, self._newer))
        if not newer.labels:
            return base
        ts_ms = np.concatenate((base.ts_ms, newer.ts_ms))
        parts = {labels: _rows(base, row) for row, labels in enumerate(base.labels)}
        for row, labels in enumerate(newer.labels):
            old, new = parts.get(labels, _NO_ROWS), len(base.ts_ms) + _rows(newer, row)
            if len(old) and ts_ms[old[-1]] >= ts_ms[new[0]]:
                rows = np.concatenate((old[~np.isin(ts_ms[old], ts_ms[new])], new))
                parts[labels] = rows[np.argsort(ts_ms[rows], kind="stable")]
            else:
                parts[labels] = np.concatenate((old, new))
        taken = np.concatenate([*parts.values()])
        starts = np.cumsum([0, *map(len, parts.values())], dtype=np.int64)
        values = np.concatenate((base.values, newer.values))[taken]
        details = joined_details([(len(one.ts_ms), one.details) for one in (base, newer)])
        details = details and details.take(taken)
        return StoredSeries(list(parts), starts, ts_ms[taken], values, base.warnings, details)


def _integers(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, np.int64)


_NO_ROWS = np.empty(0, np.int64)


def _rows(stored: StoredSeries, row: int) -> NDArray[np.int64]:
    return np.arange(stored.starts[row], stored.starts[row + 1])


def label_filter(matchers: Sequence[Matcher]) -> Callable[[Labels], bool]:
    """Whether a series matches. An absent label has the value ""."""

    def holds(labels: Labels) -> bool:
        values = dict(labels)
        return all(matches(matcher, values.get(matcher.name, "")) for matcher in matchers)

    return holds

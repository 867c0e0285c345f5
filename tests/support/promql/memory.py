"""Memory storage: samples of loaded series in dictionaries, for evaluations without a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from support.promql.notation import Labels
from tsdb.model.labels import canonical_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.selector.pattern import compile_pattern


class MemoryStorage:
    """Samples by series and time. A series without samples in the range is left out of an answer."""

    def __init__(self) -> None:
        self._series: dict[Labels, dict[int, float]] = {}

    def add(self, labels: Labels, samples: Iterable[tuple[int, float]]) -> None:
        """Samples of a series, as time in milliseconds and value."""
        self._series.setdefault(labels, {}).update(samples)

    def clear(self) -> None:
        """Remove all series and samples."""
        self._series.clear()

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """As Storage.select. Series come in the order of their labels."""
        matches = label_filter(matchers)
        found: list[tuple[Labels, list[tuple[int, float]]]] = []
        for labels in sorted(filter(matches, self._series)):
            inside = sorted((ts, value) for ts, value in self._series[labels].items() if start_ms <= ts <= end_ms)
            if inside:
                found.append((labels, inside))
        samples = [sample for _, inside in found for sample in inside]
        return StoredSeries(
            [canonical_labels(labels) for labels, _ in found],
            np.cumsum([0, *(len(inside) for _, inside in found)], dtype=np.int64),
            np.array([ts for ts, _ in samples], np.int64),
            np.array([value for _, value in samples], np.float64),
        )


def label_filter(matchers: Sequence[Matcher]) -> Callable[[Labels], bool]:
    """Whether a series matches. An absent label has the value ""."""
    conditions = [(matcher.name, _condition(matcher)) for matcher in matchers]

    def matches(labels: Labels) -> bool:
        values = dict(labels)
        return all(holds(values.get(name, "")) for name, holds in conditions)

    return matches


def _condition(matcher: Matcher) -> Callable[[str], bool]:
    wanted = matcher.value
    match matcher.type:
        case MatchType.EQUAL:
            return lambda value: value == wanted
        case MatchType.NOT_EQUAL:
            return lambda value: value != wanted
    pattern = compile_pattern(wanted)
    negated = matcher.type is MatchType.NOT_REGEX
    return lambda value: pattern.matches(value.encode()) is not negated

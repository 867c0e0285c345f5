"""Selections of one evaluation of a group: what its rules select is read once, as far back as any of them needs.

Rules of a group mostly select the same series, for instance for a rate, a sum and an alert. From one evaluation to the
next these series mostly stay, so their parsed labels do too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tsdb.model.selector import Matcher
from tsdb.promql.evaluate.query import LOOKBACK_MS
from tsdb.promql.evaluate.storage import Storage, StoredSeries
from tsdb.promql.evaluate.vectors.labels import SharedLabels
from tsdb.rules.files import RuleGroup
from tsdb.rules.reach import reaches_of

SAMPLES_KEPT_MAX = 4 << 20  # Samples of all selections of an evaluation: 64 MiB.
SERIES_KEPT_MAX = 200_000  # Series whose parsed labels are kept from one evaluation to the next: some 100 MiB.

Matchers = tuple[Matcher, ...]


@dataclass(frozen=True, slots=True)
class GroupStretches:
    """For each selector of a group, the widest stretch (T - oldest, T - newest] that a rule reads at T."""

    by_matchers: dict[Matchers, tuple[int, int]]

    @staticmethod
    def of(group: RuleGroup, lookback_ms: int = LOOKBACK_MS) -> GroupStretches:
        """Selectors that one expression alone has are left out: no other rule reads them."""
        counts: dict[Matchers, int] = {}
        found: dict[Matchers, tuple[int, int]] = {}
        for rule in group.rules:
            for reach in reaches_of(rule.query, lookback_ms):
                if reach.base_ms is None:
                    oldest_ms, newest_ms = found.get(reach.matchers, (reach.oldest_ms, reach.newest_ms))
                    stretch = max(oldest_ms, reach.oldest_ms), min(newest_ms, reach.newest_ms)
                    counts[reach.matchers] = counts.get(reach.matchers, 0) + 1
                    found[reach.matchers] = stretch
        return GroupStretches({matchers: one for matchers, one in found.items() if counts[matchers] > 1})


class SelectionLabels:
    """LRU cache of the parsed labels that selections had the last time, for all groups. Used by one thread."""

    def __init__(self, series_max: int = SERIES_KEPT_MAX) -> None:
        self._series_max = series_max
        self._series = 0
        self._known: OrderedDict[Matchers, SharedLabels] = OrderedDict()

    def of(self, matchers: Matchers, canonical: Sequence[bytes]) -> SharedLabels:
        """The labels of a selection, parsed already where its series are those of the last time."""
        known = self._known.pop(matchers, None)
        if known is not None:
            self._series -= len(known)
        if known is None or known != canonical:
            known = SharedLabels(canonical)
        self._known[matchers] = known
        self._series += len(known)
        while self._series > self._series_max:
            _, oldest = self._known.popitem(last=False)
            self._series -= len(oldest)
        return known


class GroupSelections:
    """The selections at one time. They are valid as long as the samples of that time are complete."""

    def __init__(self, stretches: GroupStretches, ts_ms: int, labels: SelectionLabels) -> None:
        self._stretches = stretches.by_matchers
        self._ts_ms = ts_ms
        self._labels = labels
        self._found: dict[tuple[Matchers, int, int], StoredSeries] = {}
        self._samples = 0

    def over(self, storage: Storage) -> Storage:
        """The storage of one rule, with the selections of the rules before it."""
        return _Remembered(self, storage)

    def select(self, storage: Storage, matchers: Matchers, start_ms: int, end_ms: int) -> StoredSeries:
        """The samples as Storage.select gives them, from memory where they are there."""
        stretch = self._stretches.get(matchers)
        if stretch is None:
            return storage.select(matchers, start_ms, end_ms)
        key = matchers, start_ms, end_ms
        found = self._found.get(key)
        if found is not None:
            return found
        first_ms, last_ms = self._ts_ms - stretch[0] + 1, self._ts_ms - stretch[1]
        if start_ms < first_ms or end_ms > last_ms or self._samples > SAMPLES_KEPT_MAX:
            return storage.select(matchers, start_ms, end_ms)
        wide = self._found.get((matchers, first_ms, last_ms))
        if wide is None:
            wide = storage.select(matchers, first_ms, last_ms)
            wide = replace(wide, labels=self._labels.of(matchers, wide.labels))
            wide = self._kept((matchers, first_ms, last_ms), wide)
        return wide if (start_ms, end_ms) == (first_ms, last_ms) else self._kept(key, wide.within(start_ms, end_ms))

    def _kept(self, key: tuple[Matchers, int, int], found: StoredSeries) -> StoredSeries:
        self._samples += len(found.ts_ms)
        self._found[key] = found
        return found


@dataclass(frozen=True, slots=True)
class _Remembered:
    selections: GroupSelections
    storage: Storage

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        return self.selections.select(self.storage, tuple(matchers), start_ms, end_ms)

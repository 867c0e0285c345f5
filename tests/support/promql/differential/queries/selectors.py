"""Selectors, ranges and subqueries with their modifiers, and the times of queries.

Samples, queries, times after `@` and ranges of subqueries have different milliseconds, and so no window begins at a
sample. Times that are `aligned` are those of samples instead: for servers of 3.0 and later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from support.promql.differential.answers import Query
from support.promql.differential.dataset import GRID_MS, GRID_REMAINDER_MS, LENGTH_MS
from support.promql.differential.queries.dialect import Dialect
from support.promql.differential.queries.vocabulary import (
    BUCKETS,
    COUNTERS,
    GAUGES,
    INFOS,
    LABELS_OF,
    NATIVE,
    ODD,
    PATTERNS,
    VALUES,
    Deck,
)

QUERY_REMAINDER_MS = 137
AT_REMAINDER_MS = 250
SUBQUERY_REMAINDER = "300ms"
BEFORE_MS, AFTER_MS = 60_000, 6 * 60_000
STEPS_S = (1, 7, 15, 15, 30, 30, 45, 60, 60, 120, 300, 1000)
RANGES = ("20s", "45s", "1m", "2m", "3m30s", "5m", "7m", "15m", "1h", "1d")
OFFSETS = ("30s", "1m", "5m", "13m", "-30s", "-2m", "30m")
SUBQUERY_STEPS = ("", "10s", "15s", "30s", "1m", "2m", "5m")
DURATION_EXPRESSIONS = ("1m + 30s", "2m * 2", "step() + 1m", "max_of(step(), 2m)", "(range() + 1m) / 2", "-(-90s)")


@dataclass(frozen=True, slots=True)
class Times:
    """base_ms: the first time of the dataset."""

    base_ms: int
    aligned: bool = False

    def query(self, chance: random.Random, text: str) -> Query:
        """An instant query or a range query at a random time."""
        start_ms = self._time(chance, QUERY_REMAINDER_MS)
        if chance.random() < 0.45:
            return Query(text, start_ms, start_ms)
        step_ms = chance.choice(STEPS_S) * 1000
        end_ms = start_ms + step_ms * chance.choice((0, 1, 2, 5, 10, 20, 30)) + chance.choice((0, 0, 1000))
        return Query(text, start_ms, end_ms, step_ms)

    def at(self, chance: random.Random) -> str:
        """A time for `@`."""
        return f"{self._time(chance, AT_REMAINDER_MS) / 1000:.3f}"

    def subquery_range(self, chance: random.Random) -> str:
        """A range whose start is no multiple of a step."""
        length = chance.choice(RANGES[1:-1])
        return length if self.aligned else length + SUBQUERY_REMAINDER

    def _time(self, chance: random.Random, remainder_ms: int) -> int:
        if self.aligned:
            steps = chance.randrange(-BEFORE_MS // GRID_MS, (LENGTH_MS + AFTER_MS) // GRID_MS)
            return self.base_ms + steps * GRID_MS + chance.choice((GRID_REMAINDER_MS, GRID_REMAINDER_MS, 0))
        seconds = chance.randrange(-BEFORE_MS // 1000, (LENGTH_MS + AFTER_MS) // 1000)
        return self.base_ms + seconds * 1000 + remainder_ms


class Selectors:
    """Selectors of the dataset's series."""

    def __init__(self, chance: random.Random, dialect: Dialect, times: Times) -> None:
        self._random = chance
        self._dialect = dialect
        self._times = times
        often, sometimes = [*COUNTERS, *GAUGES, *ODD], [*BUCKETS, *INFOS, "absent_metric"]
        if dialect.has_native_histograms:
            often += NATIVE
        self._names = Deck(chance, [*often * 2, *sometimes])

    def vector(self) -> str:
        """A selector of an instant vector."""
        return self.of(self._names.draw() if self._random.random() < 0.95 else "")

    def of(self, name: str) -> str:
        """A selector of a metric by its name, or by a pattern of the name."""
        return f"{self._selector(name)}{self._modifiers()}"

    def range(self) -> str:
        """A selector of a range vector."""
        selector = self._selector(self._names.draw() if self._random.random() < 0.97 else "")
        return f"{selector}[{self._length()}]{self._extension()}{self._modifiers()}"

    def subquery(self, expression: str) -> str:
        """An expression over a range. An operator binds less than a range, so it has parentheses."""
        chance = self._random
        length = self._times.subquery_range(chance)
        return f"({expression})[{length}:{chance.choice(SUBQUERY_STEPS)}]{self._modifiers()}"

    def matchers(self, name: str) -> str:
        """Matchers in braces for a metric: most of labels that it has."""
        labels = LABELS_OF.get(name, ())
        if not labels or self._random.random() < 0.1:
            labels = tuple(VALUES)
        chosen = self._random.sample(labels, min(len(labels), self._random.choice((1, 1, 1, 2))))
        return f"{{{', '.join(map(self._matcher, chosen))}}}"

    def _selector(self, name: str) -> str:
        if not name:
            pattern = self._random.choice(("twin_.", "twin_a|queue_length", "requests.*|errors.*", "o.*", "fl.+|up"))
            return f'{{__name__=~"{pattern}"}}'
        if self._dialect.has_quoted_names and self._random.random() < 0.03:
            return f'{{"{name}"}}'
        return name if self._random.random() < 0.7 else name + self.matchers(name)

    def _matcher(self, name: str) -> str:
        chance = self._random
        if chance.random() < 0.6:
            values = VALUES[name] if chance.random() < 0.9 else ("none", "")
            return f'{name}{chance.choice(("=", "=", "!="))}"{chance.choice(values)}"'
        return f'{name}{chance.choice(("=~", "=~", "=~", "!~"))}"{chance.choice(PATTERNS)}"'

    def _length(self) -> str:
        if self._dialect.has_duration_expressions and self._random.random() < 0.1:
            return self._random.choice(DURATION_EXPRESSIONS)
        return self._random.choice(RANGES)

    def _extension(self) -> str:
        if self._dialect.has_extensions and self._random.random() < 0.1:
            return self._random.choice((" anchored", " smoothed"))
        return ""

    def _modifiers(self) -> str:
        chance = self._random
        parts = []
        if chance.random() < 0.1:
            parts.append(f" @ {chance.choice((self._times.at(chance), 'start()', 'end()'))}")
        if chance.random() < 0.15:
            offsets = (*OFFSETS, "0s") if self._dialect.has_empty_offsets else OFFSETS
            parts.append(f" offset {chance.choice(offsets)}")
        chance.shuffle(parts)
        return "".join(parts)

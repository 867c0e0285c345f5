"""Stepper evaluates a group of rules step by step over samples in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tsdb.model.errors import TsdbError
from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.rules.alerts import Labels
from tsdb.rules.files import RuleGroup, parse_rules
from tsdb.rules.groups import (
    RuleGroupState,
    RuleSample,
    RuleSurroundings,
    VectorSample,
    evaluate_group,
    new_state,
)
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import labels_of, parse_series
from tsdb.rules.values import float_of
from tsdb.rules.vectors import vector_query

STEP_MS = 60_000
STALE = None  # Stands for a stale marker below.


class Stepper:
    """Evaluates a group over samples in memory. series: texts in the notation of unit tests."""

    def __init__(self, text: str, *series: str) -> None:
        self.storage = MemoryStorage()
        for one in map(parse_series, series):
            self.storage.add(one.labels, one.samples(0, STEP_MS))
        self.group = group(text)
        self.state = new_state(self.group)
        self.written: list[RuleSample] = []
        self.asked: list[tuple[str, int]] = []
        self.fails: Callable[[str], TsdbError | None] = lambda _: None
        self._query = vector_query(lambda: self.storage, DEFAULTS)

    def query(self, text: str, at_ms: int) -> Sequence[VectorSample]:
        error = self.fails(text)
        if error is not None:
            raise error
        self.asked.append((text, at_ms))
        return self._query(text, at_ms)

    def write(self, samples: Sequence[RuleSample]) -> None:
        self.written += samples
        for sample in samples:
            self.storage.add(sample.labels, [(sample.ts_ms, sample.value)])

    def step(self, number: int, offset_ms: int = 0) -> RuleGroupState:
        surroundings = RuleSurroundings(self.query, self.write)
        self.written.clear()
        self.state = evaluate_group(self.group, self.state, number * STEP_MS, offset_ms, surroundings)
        return self.state

    def values(self) -> dict[Labels, float | None]:
        """Values that the last step wrote; None stands for a stale marker."""
        values = ((one.labels, float_of(one.value)) for one in self.written)
        return {labels: None if math.isnan(value) else value for labels, value in values}


def group(text: str) -> RuleGroup:
    (found,) = parse_rules(f"groups: [{{name: g, {text}}}]".encode(), "f").groups
    return found


def labels(**pairs: str) -> Labels:
    return labels_of({"__name__" if name == "name" else name: value for name, value in pairs.items()})

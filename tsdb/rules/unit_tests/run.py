"""Runs a unit test of rules: the groups are evaluated step by step over the input series, then cases are compared.

The outcomes are those of `promtool test rules`. The groups are evaluated by the code of a ruler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tsdb.model.errors import TsdbError
from tsdb.model.histograms import HistogramColumns
from tsdb.promql.evaluate.native.histograms import from_columns
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.promql.syntax.literals import shown_duration
from tsdb.promql.syntax.numbers import shown_g
from tsdb.rules.alerts import AlertState
from tsdb.rules.document import Place
from tsdb.rules.files import AlertingRule, RuleFile, RuleGroup, load_rules
from tsdb.rules.groups import RuleGroupState, RuleSample, RuleSurroundings, evaluate_group, new_state
from tsdb.rules.unit_tests.file import AlertCase, ExpectedAlert, ExpressionCase, RuleUnitTest, UnitTestFile
from tsdb.rules.unit_tests.histograms import HistogramValue, ScriptStorage, values_of
from tsdb.rules.unit_tests.notation import Labels, labels_of, shown_labels
from tsdb.rules.values import RuleValue
from tsdb.rules.vectors import vector_query


@dataclass(frozen=True, slots=True)
class UnitTestFailure:
    """place: where the case begins in the file of tests."""

    place: Place
    test: str
    text: str


def run_unit_tests(tests: UnitTestFile, options: QueryOptions) -> list[UnitTestFailure]:
    """Run all tests of a file. Raises DocumentError for its rule files, and OSError."""
    files = [load_rules(path, features=options.features) for path in tests.rule_files]
    return [failure for test in tests.tests for failure in _Run(tests, test, files, options).failures()]


class _Run:
    def __init__(
        self, tests: UnitTestFile, test: RuleUnitTest, files: Sequence[RuleFile], options: QueryOptions
    ) -> None:
        self._test = test
        self._step_ms = tests.evaluation_ms
        self._is_fuzzy = tests.is_fuzzy
        self._storage = ScriptStorage()
        order = {name: place for place, name in enumerate(tests.group_order)}
        groups = [group for file in files for group in file.groups]
        self._groups: list[RuleGroup] = sorted(groups, key=lambda group: order.get(group.name, 0))
        self._states: list[RuleGroupState] = [new_state(group) for group in self._groups]
        options = replace(options, subquery_step_ms=tests.evaluation_ms)
        self._query = vector_query(lambda: self._storage, options)
        self._surroundings = RuleSurroundings(self._query, self._write, test.external_labels, test.external_url)

    def failures(self) -> list[UnitTestFailure]:
        for series in self._test.series:
            labels, start_ms, interval_ms = series.points.labels, self._test.start_ms, self._test.interval_ms
            self._storage.add(labels, series.points.samples(start_ms, interval_ms))
            if series.histograms:
                points = ((start_ms + index * interval_ms, value) for index, value in series.histograms)
                self._storage.add_histograms(labels, points)
                self._storage.with_hints(labels)
        found: list[UnitTestFailure] = []
        left = sorted(self._test.alert_cases, key=lambda case: case.eval_ms)
        for at_ms in range(self._test.start_ms, self._test.end_ms + 1, self._step_ms):
            errors = self._evaluate(at_ms)
            if errors:
                return [*found, *errors]
            while left and left[0].eval_ms < at_ms - self._test.start_ms + self._step_ms:
                found += self._alert_failures(left.pop(0))
        for case in self._test.expression_cases:
            found += self._expression_failures(case)
        return found

    def _evaluate(self, at_ms: int) -> list[UnitTestFailure]:
        """Evaluate all groups. Returns the errors of rules, which end the test."""
        self._storage.visible_until_ms = at_ms
        errors: list[UnitTestFailure] = []
        for place, group in enumerate(self._groups):
            state = evaluate_group(group, self._states[place], at_ms, group.query_offset_ms or 0, self._surroundings)
            self._states[place] = state
            time = shown_duration(at_ms - self._test.start_ms)
            errors += [
                self._failure(self._test.place, f"rule: {rule.name}, time: {time}, err: {one.error}")
                for rule, one in zip(group.rules, state.rules, strict=True)
                if one.error
            ]
        return errors

    def _write(self, samples: Sequence[RuleSample]) -> None:
        for sample in samples:
            self._storage.add(sample.labels, [(sample.ts_ms, sample.value)])
            if isinstance(sample.value, HistogramColumns):
                self._storage.with_hints(sample.labels, sample.ts_ms)

    def _alert_failures(self, case: AlertCase) -> list[UnitTestFailure]:
        got = [
            ExpectedAlert(alert.labels, alert.annotations)
            for group, state in zip(self._groups, self._states, strict=True)
            for rule, one in zip(group.rules, state.rules, strict=True)
            if isinstance(rule, AlertingRule) and rule.name == case.alertname
            for alert in one.alerts.values()
            if alert.state is AlertState.FIRING
        ]
        expected, got = sorted(case.expected, key=_alert_order), sorted(got, key=_alert_order)
        if list(map(_alert_order, expected)) == list(map(_alert_order, got)):
            return []
        text = f"alertname: {case.alertname}, time: {shown_duration(case.eval_ms)},"
        return [self._failure(case.place, f"{text}\n    exp: {_shown_alerts(expected)}\n    got: {_shown_alerts(got)}")]

    def _expression_failures(self, case: ExpressionCase) -> list[UnitTestFailure]:
        text = f'expr: "{case.text}", time: {shown_duration(case.eval_ms)},'
        try:
            vector = self._query(case.text, self._test.start_ms + case.eval_ms)
        except TsdbError as error:
            return [self._failure(case.place, f"{text} err: {error.message}")]
        got = sorted(((labels_of(sample.labels), _value(sample.value)) for sample in vector), key=_first)
        expected = sorted(case.expected, key=_first)
        if [labels for labels, _ in got] == [labels for labels, _ in expected] and all(
            self._is_equal(one, other) for (_, one), (_, other) in zip(got, expected, strict=True)
        ):
            return []
        return [self._failure(case.place, f"{text}\n    exp: {_shown(expected)}\n    got: {_shown(got)}")]

    def _is_equal(self, one: float | HistogramValue, other: float | HistogramValue) -> bool:
        """NaN is equal to nothing. A fuzzy comparison accepts the neighbours of a float, as in promtool. Histograms are
        compared as their texts, as in promtool."""
        if isinstance(one, HistogramValue) or isinstance(other, HistogramValue):
            return _text(one) == _text(other) and type(one) is type(other)
        if one == other or not self._is_fuzzy:
            return one == other
        return other in (math.nextafter(one, -math.inf), math.nextafter(one, math.inf))

    def _failure(self, place: Place, text: str) -> UnitTestFailure:
        return UnitTestFailure(place, self._test.name, text)


def _alert_order(alert: ExpectedAlert) -> tuple[Labels, Labels]:
    return alert.labels, tuple(sorted(alert.annotations.items()))


def _shown_alerts(alerts: Sequence[ExpectedAlert]) -> str:
    if not alerts:
        return "[]"
    return "".join(
        f"\n        labels: {shown_labels(labels)}, annotations: {shown_labels(annotations)}"
        for labels, annotations in map(_alert_order, alerts)
    )


def _first(sample: tuple[Labels, float | HistogramValue]) -> Labels:
    return sample[0]


def _value(value: RuleValue) -> float | HistogramValue:
    return values_of(from_columns(value))[0] if isinstance(value, HistogramColumns) else value


def _text(value: float | HistogramValue) -> str:
    return value.text if isinstance(value, HistogramValue) else shown_g(value)


def _shown(samples: Sequence[tuple[Labels, float | HistogramValue]]) -> str:
    return ", ".join(f"{shown_labels(labels)} {_text(value)}" for labels, value in samples) or "nil"

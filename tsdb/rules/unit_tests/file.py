"""Files of unit tests of rules, as `promtool test rules` reads them. A file with a problem is refused as a whole."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_time
from tsdb.rules.document import Place, Reading, YamlNode, parse_document
from tsdb.rules.unit_tests.histograms import HistogramValue, histogram_points
from tsdb.rules.unit_tests.notation import Labels, SeriesPoints, labels_of, parse_series

EVALUATION_MS = 60_000
STEPS_MAX = 1_000_000
SAMPLES_MAX = 10_000_000  # Samples of the input series of one test: some 1 GB.
BUCKETS_MAX = 1_000_000  # Buckets of all histograms of a file, and one more for each.

Parsed = TypeVar("Parsed")

_FILE_FIELDS = ("rule_files", "evaluation_interval", "group_eval_order", "fuzzy_compare", "tests")
_TEST_FIELDS = (
    *("name", "interval", "input_series", "alert_rule_test", "promql_expr_test"),
    *("external_labels", "external_url", "start_timestamp"),
)


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    """labels: with the name of the alert."""

    labels: Labels
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlertCase:
    """The firing alerts of a name at a time after the start of the test."""

    place: Place
    eval_ms: int
    alertname: str
    expected: tuple[ExpectedAlert, ...]


@dataclass(frozen=True, slots=True)
class ExpressionCase:
    """The value of an expression at a time after the start of the test."""

    place: Place
    eval_ms: int
    text: str
    expected: tuple[tuple[Labels, float | HistogramValue], ...]


@dataclass(frozen=True, slots=True)
class UnitTestSeries:
    """histograms: index and value of the points that are histograms."""

    points: SeriesPoints
    histograms: tuple[tuple[int, HistogramValue], ...] = ()


@dataclass(frozen=True, slots=True)
class RuleUnitTest:
    """series: input, with one point an interval from start_ms on."""

    name: str
    place: Place
    start_ms: int
    interval_ms: int
    series: tuple[UnitTestSeries, ...]
    alert_cases: tuple[AlertCase, ...]
    expression_cases: tuple[ExpressionCase, ...]
    external_labels: Mapping[str, str]
    external_url: str

    @property
    def end_ms(self) -> int:
        """Time of the last evaluation, at the latest."""
        times = [case.eval_ms for case in self.alert_cases] + [case.eval_ms for case in self.expression_cases]
        return self.start_ms + max(times, default=0)


@dataclass(frozen=True, slots=True)
class UnitTestFile:
    """rule_files: that were found. unmatched: patterns without a file. evaluation_ms: between two evaluations."""

    file: str
    rule_files: tuple[Path, ...]
    unmatched: tuple[str, ...]
    evaluation_ms: int
    group_order: tuple[str, ...]
    is_fuzzy: bool
    tests: tuple[RuleUnitTest, ...]


def load_unit_tests(path: Path) -> UnitTestFile:
    """The tests of a file; patterns of rule files are relative to its folder. Raises DocumentError and OSError."""
    reader = _Reader(path)
    found = reader.file(parse_document(path.read_bytes(), str(path)))
    reader.reading.finish()
    return found


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._buckets = 0  # Buckets of all histograms so far.
        self.reading = Reading(str(path))

    def file(self, root: YamlNode) -> UnitTestFile:
        reading = self.reading
        fields = reading.fields(root, "a file of unit tests", _FILE_FIELDS)
        patterns = [reading.text(node, "rule_files") for node in reading.items(fields.get("rule_files"), "rule_files")]
        found = {pattern: sorted(glob.glob(str(self._path.parent / pattern))) for pattern in patterns}
        evaluation_ms = reading.duration_ms(fields.get("evaluation_interval"), "evaluation_interval") or EVALUATION_MS
        order = reading.items(fields.get("group_eval_order"), "group_eval_order")
        return UnitTestFile(
            str(self._path),
            tuple(Path(name) for names in found.values() for name in names),
            tuple(pattern for pattern, names in found.items() if not names),
            evaluation_ms,
            tuple(reading.text(node, "group_eval_order") for node in order),
            reading.boolean(fields.get("fuzzy_compare"), "fuzzy_compare"),
            tuple(self._test(node, evaluation_ms) for node in reading.items(fields.get("tests"), "tests")),
        )

    def _test(self, node: YamlNode, evaluation_ms: int) -> RuleUnitTest:
        reading = self.reading
        fields = reading.fields(node, "a test", _TEST_FIELDS)
        start = fields.get("start_timestamp")
        series = tuple(self._series(one) for one in reading.items(fields.get("input_series"), "input_series"))
        if sum(len(one.points.points) for one in series) > SAMPLES_MAX:
            reading.problem(node.place, f"more than {SAMPLES_MAX} samples in the series of a test: split the test")
        test = RuleUnitTest(
            reading.text(fields.get("name"), "name"),
            node.place,
            0 if start is None else self._parsed(start, "start_timestamp", _start_ms, 0),
            reading.duration_ms(fields.get("interval"), "interval") or evaluation_ms,
            series,
            tuple(map(self._alert_case, reading.items(fields.get("alert_rule_test"), "alert_rule_test"))),
            tuple(map(self._expression_case, reading.items(fields.get("promql_expr_test"), "promql_expr_test"))),
            reading.texts(fields.get("external_labels"), "external_labels"),
            reading.text(fields.get("external_url"), "external_url"),
        )
        if (test.end_ms - test.start_ms) // evaluation_ms > STEPS_MAX:
            reading.problem(
                node.place, f"more than {STEPS_MAX} evaluations in a test: use a longer evaluation_interval"
            )
        return test

    def _series(self, node: YamlNode) -> UnitTestSeries:
        reading = self.reading
        fields = reading.fields(node, "a series", ("series", "values"))
        text = f"{reading.text(fields.get('series'), 'series')} {reading.text(fields.get('values'), 'values')}"
        found = self._parsed(node, "series", parse_series, SeriesPoints((), ()), text)
        histograms: tuple[tuple[int, HistogramValue], ...] = ()
        if found.has_histograms:
            histograms = self._parsed(node, "series", lambda _: self._histograms(found), (), text)
        return UnitTestSeries(found, histograms)

    def _histograms(self, series: SeriesPoints) -> tuple[tuple[int, HistogramValue], ...]:
        """The index and the value of each point that is a histogram. Raises ValueError and InvalidHistogram."""
        found: list[tuple[int, HistogramValue]] = []
        for index, value in histogram_points(series, 0, 1):
            self._buckets += len(value.positive) + len(value.negative) + 1
            if self._buckets > BUCKETS_MAX:
                raise ValueError(f"more than {BUCKETS_MAX} buckets of histograms in a file: split the file")
            found.append((index, value))
        return tuple(found)

    def _alert_case(self, node: YamlNode) -> AlertCase:
        reading = self.reading
        fields = reading.fields(node, "an alert_rule_test", ("eval_time", "alertname", "exp_alerts"))
        name = reading.text(fields.get("alertname"), "alertname")
        if not name:
            reading.problem(node.place, "an item under alert_rule_test misses required attribute alertname")
        return AlertCase(
            node.place,
            reading.duration_ms(fields.get("eval_time"), "eval_time") or 0,
            name,
            tuple(self._alert(one, name) for one in reading.items(fields.get("exp_alerts"), "exp_alerts")),
        )

    def _alert(self, node: YamlNode, name: str) -> ExpectedAlert:
        fields = self.reading.fields(node, "an alert", ("exp_labels", "exp_annotations"))
        labels = self.reading.texts(fields.get("exp_labels"), "exp_labels")
        annotations = self.reading.texts(fields.get("exp_annotations"), "exp_annotations")
        return ExpectedAlert(labels_of({**labels, "alertname": name}), annotations)

    def _expression_case(self, node: YamlNode) -> ExpressionCase:
        reading = self.reading
        fields = reading.fields(node, "a promql_expr_test", ("expr", "eval_time", "exp_samples"))
        return ExpressionCase(
            node.place,
            reading.duration_ms(fields.get("eval_time"), "eval_time") or 0,
            reading.text(fields.get("expr"), "expr"),
            tuple(map(self._sample, reading.items(fields.get("exp_samples"), "exp_samples"))),
        )

    def _sample(self, node: YamlNode) -> tuple[Labels, float | HistogramValue]:
        reading = self.reading
        fields = reading.fields(node, "a sample", ("labels", "value", "histogram"))
        text = reading.text(fields.get("labels"), "labels") or "{}"
        found = self._parsed(node, "labels", parse_series, SeriesPoints((), ()), text)
        if found.points:
            reading.problem(node.place, f'labels: unexpected values behind "{text}"')
        number = reading.number(fields.get("value"), "value")
        histogram = reading.text(fields.get("histogram"), "histogram")
        if not histogram:
            return found.labels, number
        return found.labels, self._parsed(node, "histogram", self._histogram, HistogramValue(), histogram)

    def _histogram(self, text: str) -> HistogramValue:
        """The only point of an expected series. Raises ValueError and InvalidHistogram."""
        series = parse_series(f"{{}} {text}")
        if len(series.points) != 1 or not series.has_histograms:
            raise ValueError(f"not one histogram: {text!r}")
        return self._histograms(series)[0][1]

    def _parsed(
        self, node: YamlNode, what: str, parse: Callable[[str], Parsed], default: Parsed, text: str | None = None
    ) -> Parsed:
        try:
            return parse(self.reading.text(node, what) if text is None else text)
        except ValueError as error:
            self.reading.problem(node.place, f"{what}: {error}")
        except InvalidRequest as error:
            self.reading.problem(node.place, f"{what}: {error.message}")
        return default


def _start_ms(text: str) -> int:
    """Seconds since 1970, or RFC 3339."""
    try:
        return round(float(text) * 1000)
    except (ValueError, OverflowError):
        return parse_time(text)

"""Comparison of a result with what a test script expects, by Prometheus's rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from support.promql.evaluation import Condition, Evaluation, Expectation, Times
from support.promql.shown_histograms import ShownHistogram
from tsdb.model.stale import STALE_BITS
from tsdb.promql.evaluate.native.histograms import HistogramCells
from tsdb.promql.evaluate.query import EvaluationResult
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.rules.unit_tests.histograms import HistogramValue, histogram_points, values_of
from tsdb.rules.unit_tests.notation import Labels, SeriesPoints, labels_of, shown_labels

EPSILON = 1e-6  # Relative error that Prometheus's own runner allows.


class Mismatch(Exception):
    """A result that is not the expected one."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}\n     got {got}")


Point: TypeAlias = float | HistogramValue | ShownHistogram


@dataclass(frozen=True, slots=True)
class Row:
    """points: values by time in milliseconds. That of an instant vector's only point is 0: it counts where and not
    when.
    """

    labels: Labels
    points: Mapping[int, Point]

    def __str__(self) -> str:
        shown = (f"{_shown_point(value)}@{ts}" for ts, value in self.points.items())
        return f"{shown_labels(self.labels)} {' '.join(shown)}"


def _shown_point(value: Point) -> str:
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def check_result(evaluation: Evaluation, result: EvaluationResult) -> None:
    """Raises Mismatch."""
    expected, value = evaluation.expected, result.value
    match value:
        case Text():
            _check(value.value == (expected.text or ""), f"the string {expected.text!r}", f"the string {value.value!r}")
        case Scalar():
            check_scalar(expected, float(value.values[0]))
        case Samples():
            times = expected.samples_at or Times(evaluation.at_ms, evaluation.at_ms, 1)
            check_rows(expected, _expected_rows(expected.series, times), sample_rows(value))
        case Block() if evaluation.times is None:
            check_vector(expected, block_rows(value, np.zeros(1, np.int64)))
        case Block():
            rows = block_rows(value, result.times_ms)
            check_order(rows)
            check_rows(expected, _expected_rows(expected.series, evaluation.times), rows)


def check_scalar(expected: Expectation, value: Point) -> None:
    """Raises Mismatch."""
    matches = expected.scalar is not None and _is_same(expected.scalar, value)
    _check(matches, f"the scalar {expected.scalar}", f"the scalar {value!r}")


def check_vector(expected: Expectation, rows: Sequence[Row]) -> None:
    """Compare an instant vector, in its order where that counts. Raises Mismatch."""
    wanted = _expected_rows(expected.series, Times(0, 0, 1))
    check_rows(expected, wanted, rows)
    if expected.is_ordered:
        _check([row.labels for row in wanted] == [row.labels for row in rows], _shown(wanted), _shown(rows))


def check_rows(expected: Expectation, wanted: Sequence[Row], rows: Sequence[Row]) -> None:
    """Compare series in any order. Raises Mismatch."""
    if expected.scalar is not None or expected.text is not None:
        raise Mismatch(f"{expected.scalar if expected.text is None else expected.text!r}", _shown(rows))
    by_labels = {row.labels: row for row in rows}
    same = len(by_labels) == len(rows) == len(wanted) and all(
        row.labels in by_labels and _same_points(row.points, by_labels[row.labels].points) for row in wanted
    )
    _check(same, _shown(wanted), _shown(rows))


def check_order(rows: Sequence[Row]) -> None:
    """The series of a range query come in the order of their labels. Raises Mismatch."""
    _check(list(rows) == sorted(rows, key=lambda row: row.labels), "series in the order of labels", _shown(rows))


def check_annotations(expected: Expectation, result: EvaluationResult) -> None:
    """Raises Mismatch."""
    for kind, messages in (("warn", result.warnings), ("info", result.infos)):
        conditions = expected.of(kind)
        if expected.of(f"no_{kind}"):
            _check(not messages, f"no {kind} annotation", repr(messages))
        if conditions:
            for condition in conditions:
                _check(any(map(condition.holds, messages)), _shown_conditions(kind, conditions), repr(messages))
            for message in messages:
                holds = any(condition.holds(message) for condition in conditions)
                _check(holds, _shown_conditions(kind, conditions), repr(messages))


def check_failure(expected: Expectation, message: str) -> None:
    """Raises Mismatch, also where the query was to succeed."""
    conditions = expected.of("fail")
    _check(bool(conditions), "a result", f"the error {message!r}")
    _check(all(one.holds(message) for one in conditions), _shown_conditions("fail", conditions), repr(message))


def almost_equal(first: float, second: float) -> bool:
    """Prometheus's comparison of floats: NaN is NaN, a stale marker is only a stale marker."""
    if _is_stale(first) or _is_stale(second):
        return _is_stale(first) and _is_stale(second)
    if first == second or (first != first and second != second):
        return True
    total, difference = abs(first) + abs(second), abs(first - second)
    if first == 0 or second == 0 or total < sys.float_info.min:
        return difference < EPSILON * sys.float_info.min
    return difference / min(total, sys.float_info.max) < EPSILON


def block_rows(block: Block, times_ms: NDArray[np.int64]) -> list[Row]:
    """The series of a block that have points, in its order."""
    rows = []
    for index in range(len(block)):
        at = np.flatnonzero(block.present[index])
        points = dict(zip(times_ms[at].tolist(), _points(block.values, block.native, (index, at)), strict=True))
        if points:
            rows.append(Row(labels_of(block.labels.row(index)), points))
    return rows


def sample_rows(samples: Samples) -> list[Row]:
    """The series of a range vector, in its order."""
    rows = []
    for index in range(len(samples.starts) - 1):
        part = slice(samples.starts[index], samples.starts[index + 1])
        values = _points(samples.values, samples.native, part)
        points = dict(zip(samples.ts_ms[part].tolist(), values, strict=True))
        rows.append(Row(labels_of(samples.labels.row(index)), points))
    return rows


def _points(values: NDArray[np.float64], native: HistogramCells | None, where: Any) -> list[float | HistogramValue]:
    found: list[float | HistogramValue] = list(values[where].tolist())
    if native is not None:
        of = native.of[where]
        rows = np.flatnonzero(of >= 0)
        for row, value in zip(rows.tolist(), values_of(native.histograms.take(of[rows])), strict=True):
            found[row] = value
    return found


def _expected_rows(series: Sequence[SeriesPoints], times: Times) -> list[Row]:
    rows = []
    for one in series:
        points: dict[int, float | HistogramValue] = dict(one.samples(times.start_ms, times.step_ms))
        rows.append(Row(one.labels, points | dict(histogram_points(one, times.start_ms, times.step_ms))))
    return rows


def _same_points(first: Mapping[int, Point], second: Mapping[int, Point]) -> bool:
    return first.keys() == second.keys() and all(_is_same(value, second[ts]) for ts, value in first.items())


def _is_same(expected: Point, got: Point) -> bool:
    """A hint counts where the script gives one."""
    if not isinstance(expected, HistogramValue) or not isinstance(got, HistogramValue):
        return isinstance(expected, float) and isinstance(got, float) and almost_equal(expected, got)
    for one, other in ((expected.positive, got.positive), (expected.negative, got.negative)):
        indexes = one.keys() | other.keys()
        if not all(almost_equal(one.get(index, 0.0), other.get(index, 0.0)) for index in indexes):
            return False
    numbers = ((expected.count, got.count), (expected.sum, got.sum), (expected.zero_count, got.zero_count))
    return (
        all(almost_equal(one, other) for one, other in numbers)
        and (expected.schema, expected.bounds) == (got.schema, got.bounds)
        and expected.threshold == got.threshold
        and (not expected.has_hint or expected.hint == got.hint)
    )


def _is_stale(value: float) -> bool:
    return value != value and int(np.float64(value).view(np.uint64)) == STALE_BITS


def _check(holds: bool, expected: str, got: str) -> None:
    if not holds:
        raise Mismatch(expected, got)


def _shown(rows: Sequence[Row]) -> str:
    return "".join([f"{len(rows)} series", *(f"\n         {row}" for row in rows)])


def _shown_conditions(kind: str, conditions: Sequence[Condition]) -> str:
    return f"{kind} " + ", ".join(f"{'pattern ' * one.is_pattern}{one.text!r}" for one in conditions)

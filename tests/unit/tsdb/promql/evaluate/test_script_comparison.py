"""Results are compared with the expected ones as Prometheus's own runner does it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from support.promql.comparison import Mismatch, almost_equal, check_annotations, check_failure, check_result
from support.promql.evaluation import Evaluation
from support.promql.script import commands
from tsdb.model.stale import STALE
from tsdb.promql.evaluate.query import EvaluationResult
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.evaluate.vectors.labels import LabelSets, Pool, label_sets
from tsdb.selector.selectors import METRIC_NAME

NAN = math.nan
INSTANT = "eval instant at 1m q\n"
RANGE = "eval range from 0 to 2m step 1m q\n"


def evaluation(text: str) -> Evaluation:
    (command,) = commands(text)
    assert isinstance(command, Evaluation)
    return command


def named(names: Sequence[str]) -> LabelSets:
    return label_sets(Pool(), [{METRIC_NAME: name} for name in names])


def block(**series: Sequence[float | None]) -> Block:
    values = np.array([[0.0 if value is None else value for value in points] for points in series.values()])
    present = np.array([[value is not None for value in points] for points in series.values()])
    return Block(named([*series]), values, present, np.zeros(len(series), np.bool_))


def result(
    value: Block | Samples | Scalar | Text, warnings: tuple[str, ...] = (), infos: tuple[str, ...] = ()
) -> EvaluationResult:
    steps = value.steps if isinstance(value, Block) else 1
    return EvaluationResult(value, np.arange(steps, dtype=np.int64) * 60_000, warnings, infos)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (1.0, 1.0000019, True),
        (1.0, 1.0000021, False),
        (1e300, 1e300 * 1.0000021, False),
        (0.0, 1e-300, False),
        (0.0, -0.0, True),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (STALE, NAN, False),
        (STALE, STALE, True),
        (1.7e308, -1.7e308, False),
    ],
)
def test_floats(first: float, second: float, expected: bool) -> None:
    assert almost_equal(first, second) is expected
    assert almost_equal(second, first) is expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (INSTANT, block(x=[None])),
        (INSTANT + "x 1\ny NaN\n", block(y=[NAN], x=[1.0])),
        (INSTANT + "expect ordered\ny 1\nx 1\n", block(y=[1.0], x=[1.0])),
        (INSTANT + "2\n", Scalar(np.array([2.0]))),
        (INSTANT + 'expect string "a"\n', Text("a")),
        (RANGE + "x 1 _ 3\n", block(x=[1.0, None, 3.0])),
        (RANGE + "y _ 1\nx 1\n", block(x=[1.0, None, None], y=[None, 1.0, None])),
    ],
)
def test_equal_results(text: str, value: Block | Scalar | Text) -> None:
    check_result(evaluation(text), result(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (INSTANT, block(x=[1.0])),
        (INSTANT + "x 1\n", block(x=[2.0])),
        (INSTANT + "x 1\n", block(y=[1.0])),
        (INSTANT + "x 1\n", block(x=[None])),
        (INSTANT + "x 1\n", block(x=[1.0], y=[1.0])),
        (INSTANT + "x 1\n", Scalar(np.array([1.0]))),
        (INSTANT + "expect ordered\ny 1\nx 1\n", block(x=[1.0], y=[1.0])),
        (INSTANT + "1\n", block(x=[1.0])),
        (INSTANT + "2\n", Scalar(np.array([3.0]))),
        (INSTANT + 'expect string "a"\n', Text("b")),
        (RANGE + "x 1 _ 3\n", block(x=[1.0, 2.0, 3.0])),
        (RANGE + "x 1 2 3\n", block(x=[1.0, None, 3.0])),
        (RANGE + "x 1\ny 1\n", block(y=[1.0, None, None], x=[1.0, None, None])),
    ],
)
def test_other_results(text: str, value: Block | Scalar | Text) -> None:
    with pytest.raises(Mismatch):
        check_result(evaluation(text), result(value))


def test_two_series_with_the_same_labels_are_one_too_many() -> None:
    twice = block(x=[1.0]).take(np.zeros(2, np.int64))
    with pytest.raises(Mismatch):
        check_result(evaluation(INSTANT + "x 1\n"), result(twice))


def test_a_range_vector_has_its_samples_at_the_expected_times() -> None:
    text = "eval instant at 1m x[1m]\nexpect range vector from 20s to 1m step 20s\nx 1 _ 3\n"
    labels, starts = named(["x"]), np.array([0, 2])
    right = Samples(labels, starts, np.array([20_000, 60_000]), np.array([1.0, 3.0]), np.zeros(1, np.bool_))
    check_result(evaluation(text), result(right))
    late = Samples(labels, starts, np.array([20_000, 60_001]), np.array([1.0, 3.0]), np.zeros(1, np.bool_))
    with pytest.raises(Mismatch):
        check_result(evaluation(text), result(late))


@pytest.mark.parametrize(
    ("text", "warnings", "passes"),
    [
        ("", (), True),
        ("", ("a",), True),
        ("expect no_warn", (), True),
        ("expect no_warn", ("a",), False),
        ("expect warn", ("a", "b"), True),
        ("expect warn", (), False),
        ("expect warn msg: a (1:1)", ("a (1:1)",), True),
        ("expect warn msg: a (1:1)", ("a (1:2)",), False),
        ("expect warn msg: a", ("a", "b"), False),
        ("expect warn msg: a\nexpect warn regex: ^b.$", ("bc", "a"), True),
        ("expect warn msg: a\nexpect warn msg: b", ("a",), False),
        ("expect no_info", ("a",), True),
    ],
)
def test_annotations(text: str, warnings: tuple[str, ...], passes: bool) -> None:
    found, expected = result(block(x=[1.0]), warnings), evaluation(INSTANT + text).expected
    if passes:
        check_annotations(expected, found)
    else:
        with pytest.raises(Mismatch):
            check_annotations(expected, found)


def test_infos_are_not_warnings() -> None:
    expected = evaluation(INSTANT + "expect info msg: a\nexpect no_warn").expected
    check_annotations(expected, result(block(x=[1.0]), infos=("a",)))
    with pytest.raises(Mismatch):
        check_annotations(expected, result(block(x=[1.0]), warnings=("a",)))


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", False),
        ("expect fail", True),
        ("expect fail msg: a problem", True),
        ("expect fail msg: problem", False),
        ("expect fail regex: pr.blem", True),
        ("expect fail regex: pr.blems", False),
    ],
)
def test_failures(text: str, passes: bool) -> None:
    expected = evaluation(INSTANT + text).expected
    if passes:
        check_failure(expected, "a problem")
    else:
        with pytest.raises(Mismatch):
            check_failure(expected, "a problem")

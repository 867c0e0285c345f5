"""The differential test's own parts: they see each kind of difference, and shrink a query to its cause."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from support.promql.comparison import Row
from support.promql.differential.answers import Answer, Failure, Query
from support.promql.differential.dataset import BASE_MS, dataset
from support.promql.differential.difference import Kind, Order, close, difference
from support.promql.differential.parts import names_in, order_of
from support.promql.differential.queries.dialect import Dialect
from support.promql.differential.queries.generator import Generator
from support.promql.differential.queries.selectors import Times
from support.promql.differential.rules import Case, rules_for
from support.promql.differential.run import Run
from support.promql.differential.shrinking import shrunk
from support.promql.differential.targets import InProcess
from support.senders.go_senders import replacements
from tsdb.promql.syntax.functions import AGGREGATIONS, FUNCTIONS
from tsdb.promql.syntax.tree import COMPARISONS, SET_OPERATORS

UP, DOWN = (("__name__", "up"),), (("__name__", "down"),)
ANSWER = Answer("vector", [Row(UP, {1: 1.0}), Row(DOWN, {1: 2.0})], warnings=("slow (1:1)",))
ALL = Dialect(frozenset(FUNCTIONS), frozenset(AGGREGATIONS), True, True, True, True, True, True)


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        (replace(ANSWER, failure=Failure("execution", "no")), Kind.ERROR),
        (replace(ANSWER, kind="matrix"), Kind.TYPE),
        (replace(ANSWER, rows=ANSWER.rows[:1]), Kind.SERIES),
        (replace(ANSWER, rows=[Row(UP, {1: 1.0, 2: 1.0}), Row(DOWN, {1: 2.0})]), Kind.TIMES),
        (replace(ANSWER, rows=[Row(UP, {1: 1.0 + 1e-8}), Row(DOWN, {1: 2.0})]), Kind.VALUES),
        (replace(ANSWER, rows=ANSWER.rows[::-1]), Kind.ORDER),
        (replace(ANSWER, warnings=()), Kind.WARNINGS),
        (replace(ANSWER, infos=("odd (1:2)",)), Kind.INFOS),
    ],
    ids=lambda value: value.value if isinstance(value, Kind) else "",
)
def test_each_kind_of_difference_is_seen(other: Answer, kind: Kind) -> None:
    found = difference(ANSWER, other, Order.VALUES, with_annotations=True)
    assert found is not None
    assert found.kind is kind
    assert difference(ANSWER, ANSWER, Order.LABELS, with_annotations=True) is None


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1e10, 1e10 + 1, True),
        (1.0, 1.0 + 1e-8, False),
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (math.inf, math.inf, True),
        (math.inf, -math.inf, False),
        (math.inf, 1e308, False),
        (0.0, -0.0, True),
        (0.0, 1e-13, True),
    ],
)
def test_numbers_are_equal_within_a_billionth(one: float, other: float, equal: bool) -> None:
    assert close(one, other) is equal


def test_a_seed_gives_the_same_queries_and_draws_every_name() -> None:
    first, second = (list(Generator(7, ALL, Times(BASE_MS)).queries(2000)) for _ in range(2))
    assert first == second
    used = {name for query in first for name in names_in(query.text)}
    assert used >= {*FUNCTIONS, *AGGREGATIONS, *COMPARISONS, *SET_OPERATORS, "+", "-", "*", "/", "%", "^", "atan2"}


def test_a_query_shrinks_to_the_part_that_differs() -> None:
    query = Query("sum by (job) (abs(rate(errors_total[5m])) + 1) > 0", 0, 60_000, 15_000)
    smallest = shrunk(query, lambda smaller: "rate(" in smaller.text and "[5m]" in smaller.text)
    assert smallest == Query("rate(errors_total[5m])", 0, 0)


def test_a_run_finds_a_target_with_other_samples_and_names_the_cause() -> None:
    series = dataset()
    times = [BASE_MS + 30 * 60_000]
    run = Run(InProcess(series), InProcess(series[:-1]), rules_for((3, 14)), with_annotations=True)
    missing = dict(series[-1].labels)["__name__"]
    queries = [Query(f"abs(count({name})) + 1", times[0], times[0]) for name in ("constant", missing)]
    report = run.compare(queries, differences_max=5)
    assert report.shapes["vector"] == 1
    assert [found.query for found in report.found] == queries[1:]
    assert missing in report.found[0].smaller.text


def test_rules_for_version_2_do_not_excuse_version_3() -> None:
    case = Case(Query("up atan2 1", 0, 0), ANSWER, replace(ANSWER, rows=()), Kind.SERIES)
    assert any(rule.explains(case) for rule in rules_for((2, 42)))
    assert not any(rule.explains(case) for rule in rules_for((3, 14)))


@pytest.mark.parametrize(
    ("ours", "theirs", "equal"),
    [
        ('unknown function with name "f"; did you mean "ln"?', 'unknown function with name "f"', True),
        ('invalid parameter "query": 1:1: no', "1:1: no", True),
        ("1:1: no", "1:2: no", False),
        (
            'match group {a="b"} on the left hand-side of the operation: [{c="d"}, {c="e"}];many-to-many',
            'match group {a="c"} on the left hand-side of the operation: [{c="e"}, {c="d"}];many-to-many',
            True,
        ),
        ("match group {} on the left hand-side", "match group {} on the right hand-side", False),
    ],
)
def test_errors_are_equal_but_for_suggestions_and_the_order_of_series(ours: str, theirs: str, equal: bool) -> None:
    one, other = (Answer(failure=Failure("execution", text)) for text in (ours, theirs))
    assert (difference(one, other, Order.NONE, with_annotations=True) is None) is equal


def test_order_counts_where_the_query_sorts() -> None:
    assert order_of("(sort(up))") is Order.VALUES
    assert order_of("topk(2, up)") is Order.VALUES
    assert order_of('sort_by_label(up, "job")') is Order.LABELS
    assert order_of("abs(sort(up))") is Order.NONE


def test_a_build_takes_over_what_its_module_replaces() -> None:
    module = """
module example.org/server

replace cloud.example.org/go => cloud.example.org/go v0.123.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/apiserver => ./staging/src/k8s.io/apiserver
)
"""
    assert list(replacements(module, "v0.37.2")) == [
        "cloud.example.org/go=cloud.example.org/go@v0.123.0",
        "k8s.io/api=k8s.io/api@v0.37.2",
        "k8s.io/apiserver=k8s.io/apiserver@v0.37.2",
    ]

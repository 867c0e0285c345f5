"""An instant query is fixed to its time by `@`, as Prometheus does it."""

from __future__ import annotations

import pytest

from support.promql.reruns import Run, runs


@pytest.mark.parametrize(
    ("query", "fixed"),
    [
        ("1", "1"),
        ("x", "x @ 60.000"),
        ("x @ 5", "x @ 5.000"),
        ("x @ start() + x @ end()", "x @ 60.000 + x @ 60.000"),
        ("x offset 1m", "x @ 60.000 offset 1m"),
        ("-sum by (a) (rate(x[5m])) / (y)", "-sum by (a) (rate(x[5m] @ 60.000)) / (y @ 60.000)"),
        ("topk(scalar(x), y)", "topk(scalar(x @ 60.000), y @ 60.000)"),
        ("max_over_time(rate(x[1m])[5m:1m])", "max_over_time(rate(x[1m])[5m:1m] @ 60.000)"),
        ("max_over_time(x[5m:] @ 5)", "max_over_time(x[5m:] @ 5.000)"),
        ("max_over_time(vector(time())[5m:1m])", "max_over_time(vector(time())[5m:1m] @ 60.000)"),
        ('label_replace(x, "a", "b", "c", "d")', 'label_replace(x @ 60.000, "a", "b", "c", "d")'),
    ],
)
def test_fixed_queries(query: str, fixed: str) -> None:
    times = (-600_000, 0, 12_000, 60_000, 600_000)
    assert list(runs(query, 60_000)) == [Run(query, 60_000), *(Run(fixed, at_ms) for at_ms in times)]


@pytest.mark.parametrize("query", ["time()", "x + minute()", "predict_linear(x[5m], 1)", "timestamp(x @ 1)", "start()"])
def test_results_that_depend_on_the_time_are_not_fixed(query: str) -> None:
    assert list(runs(query, 60_000)) == [Run(query, 60_000)]


def test_a_query_at_zero_is_evaluated_around_it() -> None:
    assert [run.at_ms for run in runs("x", 0)] == [0, -1000, 0, 1000]

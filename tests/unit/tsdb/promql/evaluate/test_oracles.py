"""Kernels over ranges and groups give what plain Python over lists gives."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from tsdb.promql.evaluate.query import QueryOptions, range_query
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.memory import MemoryStorage

OPTIONS = QueryOptions(ALL_FEATURES)
STEP_MS, END_MS, RANGE_MS = 700, 7000, 2000

Samples = list[tuple[int, float]]

NUMBERS = st.one_of(st.integers(-5, 5).map(float), st.floats(-1e6, 1e6), st.sampled_from([math.nan]))
SERIES = st.dictionaries(st.integers(0, END_MS), NUMBERS, max_size=25).map(lambda held: sorted(held.items()))


def quantile(q: float, values: list[float]) -> float:
    ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    rank = q * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    weight = rank - low
    return ordered[low] * (1 - weight) + ordered[high] * weight


def increase(window: Samples, end_ms: int) -> float | None:
    if len(window) < 2:
        return None
    values = [value for _, value in window]
    change = values[-1] - values[0]
    for before, after in itertools.pairwise(values):
        if after < before:
            change += before
    sampled = (window[-1][0] - window[0][0]) / 1000
    mean = sampled / (len(window) - 1)
    to_start, to_end = (window[0][0] - (end_ms - RANGE_MS)) / 1000, (end_ms - window[-1][0]) / 1000
    if to_start >= mean * 1.1:
        to_start = mean / 2
    if change > 0 and values[0] >= 0:
        to_start = min(to_start, sampled * (values[0] / change))
    if to_end >= mean * 1.1:
        to_end = mean / 2
    return change * ((sampled + to_start + to_end) / sampled)


def slope(window: Samples) -> float | None:
    if len(window) < 2:
        return None
    values = [value for _, value in window]
    if any(math.isnan(value) for value in values):
        return math.nan
    times = [(ts - window[0][0]) / 1000 for ts, _ in window]
    return statistics.linear_regression(times, values).slope


def values_of(function: Callable[[list[float]], float]) -> Callable[[Samples, int], float | None]:
    return lambda window, _: function([value for _, value in window]) if window else None


def smallest(values: list[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return min(numbers) if numbers else math.nan


def turns(values: list[float]) -> float:
    pairs = itertools.pairwise(values)
    return float(sum(one != other and not (math.isnan(one) and math.isnan(other)) for one, other in pairs))


ORACLES: dict[str, Callable[[Samples, int], float | None]] = {
    "increase(x[2s])": increase,
    "rate(x[2s]) * 2": increase,
    "deriv(x[2s])": lambda window, _: slope(window),
    "sum_over_time(x[2s])": values_of(math.fsum),
    "avg_over_time(x[2s])": values_of(lambda values: math.fsum(values) / len(values)),
    "count_over_time(x[2s])": values_of(lambda values: float(len(values))),
    "min_over_time(x[2s])": values_of(smallest),
    "last_over_time(x[2s])": values_of(lambda values: values[-1]),
    "changes(x[2s])": values_of(turns),
    "resets(x[2s])": values_of(
        lambda values: float(sum(after < before for before, after in itertools.pairwise(values)))
    ),
    "quantile_over_time(0.3, x[2s])": values_of(lambda values: quantile(0.3, values)),
    "stdvar_over_time(x[2s])": values_of(
        lambda values: math.nan if any(map(math.isnan, values)) else statistics.pvariance(values)
    ),
}


@pytest.mark.parametrize("query", ORACLES)
@settings(max_examples=examples(60))
@given(series=st.lists(SERIES, min_size=1, max_size=3))
def test_functions_over_ranges_give_what_lists_give(query: str, series: list[Samples]) -> None:
    found = _found(query, series)
    for row, samples in enumerate(series):
        for step, end_ms in enumerate(range(0, END_MS + 1, STEP_MS)):
            window = [(ts, value) for ts, value in samples if end_ms - RANGE_MS < ts <= end_ms]
            _assert_same(found.get((row, step)), ORACLES[query](window, end_ms), f"{query} {window} at {end_ms}")


AGGREGATIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "avg": lambda values: math.fsum(values) / len(values),
    "min": smallest,
    "count": lambda values: float(len(values)),
    "stddev": lambda values: math.nan if any(map(math.isnan, values)) else statistics.pstdev(values),
    "quantile": lambda values: quantile(0.7, values),
}


@pytest.mark.parametrize("operator", AGGREGATIONS)
@settings(max_examples=examples(60))
@given(series=st.lists(SERIES, min_size=1, max_size=6))
def test_aggregations_give_what_lists_give(operator: str, series: list[Samples]) -> None:
    parameter = "0.7, " if operator == "quantile" else ""
    found = _found(f"{operator} by (g) ({parameter}x)", series)
    for step, end_ms in enumerate(range(0, END_MS + 1, STEP_MS)):
        for group in (0, 1):
            newest = [
                [value for ts, value in samples if ts <= end_ms][-1]
                for row, samples in enumerate(series)
                if row % 2 == group and any(ts <= end_ms for ts, _ in samples)
            ]
            wanted = AGGREGATIONS[operator](newest) if newest else None
            _assert_same(found.get((group, step)), wanted, f"{operator} {newest} at {end_ms}")


@settings(max_examples=examples(60))
@given(series=st.lists(SERIES, min_size=1, max_size=6), count=st.integers(1, 4))
def test_topk_gives_the_largest_values(series: list[Samples], count: int) -> None:
    found = _found(f"topk({count}, x)", series)
    for step, end_ms in enumerate(range(0, END_MS + 1, STEP_MS)):
        newest = [
            [value for ts, value in samples if ts <= end_ms][-1]
            for samples in series
            if any(ts <= end_ms for ts, _ in samples)
        ]
        largest = sorted(newest, key=lambda value: (math.isnan(value), -value))[:count]
        chosen = [value for (_, at), value in found.items() if at == step]
        assert _shown(chosen) == _shown(largest)


def _shown(values: list[float]) -> str:
    """The values in their order. 0 and -0 are equal: which of them is among the largest depends on their labels."""
    return str(sorted((value + 0.0 for value in values), key=lambda value: (math.isnan(value), value)))


def _found(query: str, series: list[Samples]) -> dict[tuple[int, int], float]:
    """Values by row, which a label has, and by step."""
    storage = MemoryStorage()
    for row, samples in enumerate(series):
        storage.add((("__name__", "x"), ("g", str(row % 2)), ("row", str(row))), samples)
    block = range_query(query, storage, 0, END_MS, STEP_MS, OPTIONS).value
    assert isinstance(block, Block)
    rows = [int(labels.get("row", labels.get("g", "0"))) for labels in map(block.labels.row, range(len(block)))]
    return {(rows[row], step): float(block.values[row, step]) for row, step in np.argwhere(block.present).tolist()}


def _assert_same(found: float | None, wanted: float | None, what: str) -> None:
    if found is None or wanted is None:
        assert found is wanted, what
    else:
        assert (
            math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-6) or math.isnan(found) is math.isnan(wanted) is True
        ), f"{what}: {found} is not {wanted}"

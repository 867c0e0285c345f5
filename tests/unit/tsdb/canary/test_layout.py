"""Values of the canary prove themselves: a right one names its run, any other is found."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tsdb.canary.layout import METRIC, RUN_MAX, Layout, runs_of, values_of
from tsdb.client import RequestLimits, WriteBatch
from tsdb.client.write import calls
from tsdb.model.labels import parse_labels
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.selector.selectors import parse_selector

LAYOUT = Layout("c", 10_000, 16)
NOW_MS = 1_790_000_000_000


def one(row: int, ts_ms: int, run: int) -> float:
    return float(values_of(np.array([row]), np.array([ts_ms]), np.array([run]))[0])


def run_of(row: int, ts_ms: int, value: float) -> int:
    return int(runs_of(np.array([row]), np.array([ts_ms]), np.array([value]))[0])


@pytest.mark.parametrize("run", [0, 1, 777, RUN_MAX])
def test_a_value_names_its_run(run: int) -> None:
    assert run_of(3, NOW_MS, one(3, NOW_MS, run)) == run


def test_a_value_of_another_series_or_time_is_wrong() -> None:
    value = one(3, NOW_MS, 5)
    assert run_of(4, NOW_MS, value) == run_of(3, NOW_MS + 1, value) == -1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1.0, -0.0, 0.5, 1e300, float((RUN_MAX + 1) << 32)])
def test_values_that_no_canary_writes_are_wrong(value: float) -> None:
    assert run_of(3, NOW_MS, value) == -1


def test_any_changed_bit_of_a_value_is_found() -> None:
    value = np.array([one(3, NOW_MS, 5)])
    for bit in range(64):
        changed = (value.view(np.uint64) ^ np.uint64(1 << bit)).view(np.float64)
        assert run_of(3, NOW_MS, float(changed[0])) == -1, bit


def test_a_sum_of_all_series_is_exact_in_any_order() -> None:
    rows = np.arange(64)
    values = values_of(rows, np.full(64, NOW_MS), np.full(64, RUN_MAX)).tolist()
    random.Random(1).shuffle(values)
    assert sum(values) == sum(int(value) for value in values) < 2**53


def test_the_selector_matches_the_series_and_those_of_no_other_layout() -> None:
    matchers = {matcher.name: matcher.value for matcher in parse_selector(LAYOUT.selector)}
    assert matchers.pop("__name__") == METRIC
    for canonical in LAYOUT.labels:
        assert matchers.items() <= dict(parse_labels(canonical)).items()
    for other in (Layout("d", 10_000, 16), Layout("c", 5_000, 16), Layout("c", 10_000, 8)):
        assert not matchers.items() <= dict(parse_labels(other.labels[0])).items()


def test_the_series_spread_over_partitions() -> None:
    rule = PlacementRule()
    partitions = {partition_of(rule.place(canonical).placement, 6) for canonical in LAYOUT.labels}
    assert len(partitions) >= 5


def test_all_series_of_one_time_are_one_request() -> None:
    """In two requests one half of a write could be acknowledged without the other."""
    layout, batch = Layout("n" * 100, 100, 64), WriteBatch()
    for canonical in layout.labels:
        batch.add(canonical, NOW_MS, 1.0)
    assert len(list(calls(batch, RequestLimits(), partial=False))) == 1


def test_ticks_are_the_multiples_of_the_period_in_a_half_open_range() -> None:
    assert LAYOUT.ticks(10_000, 30_000).tolist() == [10_000, 20_000]
    assert LAYOUT.ticks(10_001, 30_001).tolist() == [20_000, 30_000]
    assert LAYOUT.tick_ms(19_999) == 10_000

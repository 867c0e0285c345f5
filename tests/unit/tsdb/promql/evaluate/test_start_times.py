"""Functions of counters use start timestamps when the query asks for it. A plain twin has their rules one sample at a
time (promql/functions.go of Prometheus 3.14)."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from support.promql.histograms import HistogramStorage
from tsdb.model.histograms import RESET
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query, range_query
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.unit_tests.histograms import HistogramValue, values_of

USING = QueryOptions(features=ALL_FEATURES)
WITHOUT = QueryOptions(features=ALL_FEATURES._replace(start_timestamps=False))
LABELS = (("__name__", "x_total"),)
STEP_MS, RANGE_MS = 10_000, 45_000
NONE = pytest.approx([math.nan], nan_ok=True)
OVERLAP = "sample has start time that overlaps with previous sample timestamp"


@dataclass(frozen=True, slots=True)
class Point:
    """start_ms: 0 for none."""

    ts_ms: int
    value: float
    start_ms: int


def is_reset(before: Point, now: Point) -> bool:
    if now.start_ms == 0 or now.start_ms >= now.ts_ms or now.start_ms < before.ts_ms:
        return False
    if now.start_ms > before.ts_ms:
        return True
    return before.start_ms != 0 and before.start_ms < before.ts_ms


def falls(before: Point, now: Point) -> bool:
    return now.value < before.value or is_reset(before, now)


def rate_of(points: list[Point], at_ms: int, name: str) -> float:
    """rate, increase, irate or resets of the points of a window; NaN: none."""
    pairs = list(pairwise(points))
    if name == "resets":
        return float(sum(falls(*pair) for pair in pairs)) if points else math.nan
    if name == "irate":
        if not pairs:
            return math.nan
        before, now = pairs[-1]
        change = now.value if falls(before, now) else now.value - before.value
        return change / ((now.ts_ms - before.ts_ms) / 1000)
    if not points:
        return math.nan
    first, last = points[0], points[-1]
    change = last.value - first.value + sum(before.value for before, now in pairs if falls(before, now))
    after_ms = at_ms - RANGE_MS
    to_start, to_end = (first.ts_ms - after_ms) / 1000, (at_ms - last.ts_ms) / 1000
    sampled = (last.ts_ms - first.ts_ms) / 1000
    mean = sampled / len(pairs) if pairs else 0.0
    if first.start_ms != 0 and after_ms < first.start_ms < first.ts_ms:
        to_start, sampled, change = 0.0, (last.ts_ms - first.start_ms) / 1000, change + first.value
    elif not pairs:
        return math.nan
    else:
        to_start = mean / 2 if to_start >= mean * 1.1 else to_start
        if change > 0 and first.value >= 0:
            to_start = min(to_start, sampled * (first.value / change))
    to_end = mean / 2 if to_end >= mean * 1.1 else to_end
    found = change * ((sampled + to_start + to_end) / sampled)
    return found / (RANGE_MS / 1000) if name == "rate" else found


def random_points(seed: int) -> list[Point]:
    """A counter with resets, holes, and starts of all kinds: known, at the sample before, unknown, invalid, none."""
    rng = random.Random(seed)
    points: list[Point] = []
    value, start_ms = 0.0, 1
    for index in range(1, 40):
        if rng.random() < 0.2:
            continue
        ts_ms = index * STEP_MS
        before_ms = points[-1].ts_ms if points else 0
        if rng.random() < 0.3:
            start_ms = rng.choice([before_ms, before_ms + 1, ts_ms, ts_ms + 5, 0, rng.randint(1, ts_ms), start_ms])
            value = rng.choice([0.0, value, value * 2])
        value += rng.randint(0, 5)
        points.append(Point(ts_ms, value, start_ms))
    return points


def stored(points: list[Point], labels: tuple[tuple[str, str], ...] = LABELS) -> HistogramStorage:
    storage = HistogramStorage()
    storage.add(labels, [(point.ts_ms, point.value) for point in points])
    for point in points:
        storage.add_start(labels, point.ts_ms, point.start_ms)
    return storage


def column(result: EvaluationResult) -> list[float]:
    """The values of the only series; NaN where it has none."""
    block = result.value
    assert isinstance(block, Block)
    if not len(block):
        return [math.nan] * len(result.times_ms)
    found: list[float] = np.where(block.present[0], block.values[0], np.nan).tolist()
    return found


@pytest.mark.parametrize("name", ["rate", "increase", "irate", "resets"])
def test_functions_of_counters_are_those_of_the_twin(name: str) -> None:
    for seed in range(60):
        points = random_points(seed)
        result = range_query(f"{name}(x_total[45s])", stored(points), 5_000, 420_000, 5_000, USING)
        expected = []
        for at_ms in range(5_000, 420_001, 5_000):
            window = [point for point in points if at_ms - RANGE_MS < point.ts_ms <= at_ms]
            expected.append(rate_of(window, at_ms, name))
        assert column(result) == pytest.approx(expected, rel=1e-12, abs=1e-12, nan_ok=True), seed


@pytest.mark.parametrize("name", ["rate", "increase", "irate", "resets"])
def test_histograms_follow_the_rules_of_floats(name: str) -> None:
    """A histogram whose count is the value of the counter: its falls are resets too."""
    for seed in range(30):
        points = random_points(seed)
        storage = HistogramStorage()
        storage.add_histograms(LABELS, [(one.ts_ms, HistogramValue(0, one.value, 2 * one.value)) for one in points])
        for point in points:
            storage.add_start(LABELS, point.ts_ms, point.start_ms)
        found = range_query(f"{name}(x_total[45s])", storage, 5_000, 420_000, 5_000, USING).value
        floats = column(range_query(f"{name}(x_total[45s])", stored(points), 5_000, 420_000, 5_000, USING))
        assert isinstance(found, Block)
        if name == "resets":
            assert np.where(found.present[0], found.values[0], np.nan).tolist() == pytest.approx(floats, nan_ok=True)
            continue
        assert found.native is not None
        counts = found.native.histograms.counts[found.native.of[0]]
        sums = found.native.histograms.sums[found.native.of[0]]
        assert [bool(here) for here in found.present[0]] == [not math.isnan(one) for one in floats], seed
        for here, count, total, expected in zip(found.present[0], counts, sums, floats, strict=True):
            if here:
                assert (count, total) == pytest.approx((expected, 2 * expected), rel=1e-12, abs=1e-12), seed


def test_a_counter_that_appears_counts_its_first_sample() -> None:
    points = [Point(60_000, 7.0, 30_000), Point(75_000, 9.0, 30_000)]
    storage = stored(points)
    assert column(instant_query("increase(x_total[1m])", storage, 75_000, USING)) == [9.0]
    assert column(instant_query("increase(x_total[1m])", storage, 60_000, USING)) == [7.0]
    assert column(instant_query("increase(x_total[1m])", storage, 60_000, WITHOUT)) == NONE


def test_one_histogram_with_its_start_is_an_increase_with_the_buckets_of_it_alone() -> None:
    """The sample after the window has a coarser schema."""
    storage = HistogramStorage()
    value = HistogramValue(3, 4.0, 8.0, positive={1: 1.0, 2: 3.0})
    storage.add_histograms(LABELS, [(60_000, value), (75_000, replace(value, schema=0, hint=RESET))])
    storage.add_start(LABELS, 60_000, 30_000)
    found = instant_query("increase(x_total[1m])", storage, 60_000, USING).value
    assert isinstance(found, Block)
    assert found.native is not None
    (made,) = values_of(found.native.histograms.take(found.native.of[0]))
    assert (made.schema, made.count, made.sum, made.positive) == (3, 4.0, 8.0, {1: 1.0, 2: 3.0})


@pytest.mark.parametrize(
    "query",
    [
        *(f"{name}(x_total[45s])" for name in ("rate", "increase", "irate", "resets", "delta", "changes")),
        "rate(x_total[45s] anchored)",
        "sum_over_time(x_total[45s])",
        "x_total",
    ],
)
def test_a_query_without_the_feature_does_not_see_start_timestamps(query: str) -> None:
    points = random_points(3)
    plain = [replace(point, start_ms=0) for point in points]
    with_starts, without = (
        range_query(query, stored(some), 5_000, 420_000, 5_000, WITHOUT) for some in (points, plain)
    )
    assert column(with_starts) == pytest.approx(column(without), nan_ok=True)
    assert with_starts.warnings == without.warnings == ()


@pytest.mark.parametrize("query", ["increase(x_total[45s:10s])", "delta(x_total[45s])", "rate(x_total[45s] smoothed)"])
def test_other_functions_and_subqueries_do_not_use_start_timestamps(query: str) -> None:
    storage = stored(random_points(5))
    using, without = (range_query(query, storage, 5_000, 420_000, 5_000, options) for options in (USING, WITHOUT))
    assert column(using) == pytest.approx(column(without), nan_ok=True)


def test_start_timestamp_is_that_of_the_newest_sample() -> None:
    storage = stored([Point(60_000, 7.0, 30_000), Point(75_000, 9.0, 0)])
    assert column(range_query("start_timestamp(x_total)", storage, 60_000, 80_000, 10_000, USING)) == [30.0, 30.0, 0.0]
    assert column(instant_query("start_timestamp(x_total)", storage, 60_000, WITHOUT)) == NONE
    assert column(instant_query("start_timestamp(x_total + 1)", storage, 60_000, USING)) == NONE


def test_stale_markers_leave_the_starts_of_other_samples() -> None:
    points = [Point(60_000, 7.0, 30_000), Point(75_000, 9.0, 30_000)]
    storage = stored(points)
    stale = np.array([0x7FF0000000000002], np.int64).view(np.float64)[0]
    storage.add(LABELS, [(65_000, float(stale))])
    assert column(instant_query("increase(x_total[1m])", storage, 75_000, USING)) == [9.0]


@pytest.mark.parametrize("name", ["rate", "increase"])
def test_overlaps_are_warned_of(name: str) -> None:
    overlapping = [Point(60_000, 1.0, 30_000), Point(75_000, 2.0, 40_000)]
    (warning,) = instant_query(f"{name}(x_total[1m])", stored(overlapping), 75_000, USING).warnings
    assert OVERLAP in warning
    assert '"x_total"' in warning
    apart = [overlapping[0], replace(overlapping[1], start_ms=60_000)]
    assert instant_query(f"{name}(x_total[1m])", stored(apart), 75_000, USING).warnings == ()
    # The first sample of a window has none before it.
    assert instant_query(f"{name}(x_total[10s])", stored(overlapping), 75_000, USING).warnings == ()

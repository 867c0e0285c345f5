"""Native histograms in PromQL: sums equal those of a plain oracle, and functions have the rules of Prometheus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.promql.histograms import HistogramStorage
from support.promql.runner import State, run_script
from tsdb.model.errors import Overloaded
from tsdb.model.histograms import CUSTOM_BOUNDS, joined_histograms
from tsdb.promql.evaluate.groups import histogram_groups
from tsdb.promql.evaluate.native.bucket_kernels import bound_of
from tsdb.promql.evaluate.native.combine_kernels import RECONCILED_ADDITION
from tsdb.promql.evaluate.native.histograms import NativeHistograms, from_columns, joined_natives
from tsdb.promql.evaluate.native.shown import shown_histograms
from tsdb.promql.evaluate.query import QueryOptions, range_query
from tsdb.promql.evaluate.ranges import histogram_ranges
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.rules.unit_tests.histograms import HistogramValue, values_of

COUNTS = st.integers(0, 1000).map(float)
BUCKETS = st.dictionaries(st.integers(-30, 30), COUNTS, max_size=6)
VALUES = st.builds(
    HistogramValue,
    st.integers(-4, 8),
    COUNTS,
    COUNTS,
    COUNTS,
    st.just(0.0),
    st.just(()),
    BUCKETS,
    BUCKETS,
)


def native(*values: HistogramValue) -> NativeHistograms:
    return from_columns(joined_histograms([value.columns() for value in values]))


def filled(value: HistogramValue) -> tuple[object, ...]:
    sides = ({index: count for index, count in side.items() if count} for side in (value.positive, value.negative))
    return (value.schema, value.count, value.sum, value.zero_count, value.threshold, value.bounds, *sides)


def combined(*values: HistogramValue) -> HistogramValue:
    found = native(*values).combined(np.array([0, len(values)]), np.arange(len(values)), np.ones(len(values)))
    assert found.failed.tolist() == [-1]
    return values_of(found.histograms)[0]


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_a_sum_has_the_lowest_schema_and_all_observations(values: list[HistogramValue]) -> None:
    expected = values[0]
    for value in values[1:]:
        expected = expected.plus(value, 1.0)
    assert filled(combined(*values)) == filled(expected)


@given(st.lists(VALUES, min_size=1, max_size=4), st.lists(VALUES, min_size=1, max_size=4))
def test_groups_do_not_touch_each_other(one: list[HistogramValue], other: list[HistogramValue]) -> None:
    pool = joined_natives([native(*one), native(*other)])
    starts = np.array([0, len(one), len(one) + len(other)])
    found = pool.combined(starts, np.arange(len(pool)), np.ones(len(pool)))
    assert [filled(value) for value in values_of(found.histograms)] == [
        filled(combined(*one)),
        filled(combined(*other)),
    ]


@given(VALUES)
def test_a_histogram_equals_itself_and_is_no_reset(value: HistogramValue) -> None:
    pool, both = native(value, value), (np.array([0]), np.array([1]))
    assert pool.are_equal(*both).all()
    assert not pool.are_resets(*both).any()


@given(VALUES, st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]))
def test_a_quantile_has_its_share_of_the_observations(value: HistogramValue, q: float) -> None:
    total = value.zero_count + sum(value.positive.values()) + sum(value.negative.values())
    if total == 0:
        return
    pool = native(replace(value, count=total))
    at = pool.quantiles(np.array([q]))[0]
    low = np.array([-np.inf])
    below = pool.fractions(low, np.nextafter(at, -np.inf))[0][0]
    above = pool.fractions(low, np.nextafter(at, np.inf))[0][0]
    assert below - 1e-6 <= q <= above + 1e-6


@pytest.mark.parametrize(
    ("index", "schema", "bound"),
    [(0, 0, 1.0), (1, 0, 2.0), (-1, 0, 0.5), (1, 1, 2**0.5), (3, -1, 64.0), (1024, 0, 1.7976931348623157e308),
     (1025, 0, np.inf), (-1075, 0, 0.0), (2**31 - 1, -4, np.inf), (256 * 1024, 8, 1.7976931348623157e308)],
)  # fmt: skip
def test_bounds_of_buckets(index: int, schema: int, bound: float) -> None:
    assert bound_of(index, schema) == pytest.approx(bound, rel=1e-15)


def test_a_zero_bucket_takes_the_buckets_that_it_covers() -> None:
    wide = HistogramValue(0, 3, 3, 3, 1.5)
    narrow = HistogramValue(0, 6, 6, 1, 0.5, (), {0: 1, 1: 2, 2: 2})
    # 1.5 lies inside of (1, 2], which is not empty, so the zero bucket reaches to 2.
    assert filled(combined(wide, narrow)) == (0, 9, 9, 7, 2.0, (), {2: 2}, {})
    assert filled(combined(narrow, wide)) == (0, 9, 9, 7, 2.0, (), {2: 2}, {})


def test_different_bounds_are_reconciled_to_those_of_both() -> None:
    one = HistogramValue(CUSTOM_BOUNDS, 6, 1, bounds=(1, 2, 3), positive={0: 1, 1: 2, 3: 3})
    other = HistogramValue(CUSTOM_BOUNDS, 7, 1, bounds=(2, 4), positive={0: 3, 1: 4})
    found = native(one, other).combined(np.array([0, 2]), np.arange(2), np.ones(2))
    assert found.flags[0] & RECONCILED_ADDITION
    assert filled(values_of(found.histograms)[0]) == (CUSTOM_BOUNDS, 13, 2, 0, 0, (2,), {0: 6, 1: 7}, {})


def test_exponential_and_custom_buckets_have_no_sum() -> None:
    one, other = HistogramValue(0, 1, 1), HistogramValue(CUSTOM_BOUNDS, 1, 1)
    found = native(one, one, other).combined(np.array([0, 3]), np.arange(3), np.ones(3))
    assert found.failed.tolist() == [2]


def test_a_mean_whose_sum_overflows_is_the_sum_of_shares() -> None:
    value = HistogramValue(0, 1.5e308, 1e308, positive={0: 1.5e308})
    found = native(value, value).combined(np.array([0, 2]), np.arange(2), np.ones(2), np.array([2.0]))
    assert filled(values_of(found.histograms)[0]) == filled(value)


def test_the_text_of_a_histogram() -> None:
    value = HistogramValue(0, 9, 4.5, 2, 0.001, (), {0: 1, 1: 3}, {0: 3})
    custom = HistogramValue(CUSTOM_BOUNDS, 2, 7, bounds=(1.0, 2.0), positive={0: 1, 2: 1})
    assert list(shown_histograms(native(value, custom))) == [
        "{count:9, sum:4.5, [-1,-0.5):3, [-0.001,0.001]:2, (0.5,1]:1, (1,2]:3}",
        "{count:2, sum:7, [-Inf,1]:1, (2,+Inf]:1}",
    ]


LOADED = """
load 1m
  h{a="1"} {{count:4 sum:4 buckets:[1 2 1]}}+{{count:4 sum:4 buckets:[1 2 1]}}x4
  h{a="2"} {{count:4 sum:4 buckets:[1 2 1]}}x2 {{count:2 sum:2 buckets:[1 1]}}+{{count:2 sum:2 buckets:[1 1]}}x1
  gauge {{count:2 sum:1 buckets:[2] counter_reset_hint:gauge}} {{count:3 sum:5 buckets:[3] counter_reset_hint:gauge}}
  custom {{schema:-53 count:4 sum:9 custom_values:[1 2] buckets:[1 2 1]}}x4
  mixed 1 2 {{count:1 sum:1}} {{count:2 sum:2}} 3
  f{a="1"} 2x4

load_with_nhcb 1m
  classic_bucket{le="1"} 1+1x4
  classic_bucket{le="+Inf"} 2+2x4
  classic_count 2+2x4
  classic_sum 5+5x4

"""
EVALUATIONS = """
histogram_count(h{a="1"}) = {a="1"} 20
histogram_sum(h{a="1"} offset 1m) = {a="1"} 16
histogram_avg(custom) = {} 2.25
histogram_stdvar(custom) = {} +Inf
histogram_quantile(0.5, h{a="1"}) = {a="1"} 1.414213562373095
histogram_fraction(0, 2, h{a="1"}) = {a="1"} 0.75
histogram_quantile(0.5, custom) = {} 1.5
histogram_quantile(0.5, classic) = {} 1
sum(h) = {} {{count:24 sum:24 buckets:[7 12 5]}}
avg(h) = {} {{count:12 sum:12 buckets:[3.5 6 2.5]}}
count(h) = {} 2
group(h) = {} 1
min(h) =
topk(1, h) =
count(limitk(1, h)) = {} 1
h{a="1"} * 2 = {a="1"} {{count:40 sum:40 buckets:[10 20 10]}}
h{a="1"} / 4 = {a="1"} {{count:5 sum:5 buckets:[1.25 2.5 1.25]}}
-h{a="1"} = {a="1"} {{count:-20 sum:-20 buckets:[-5 -10 -5] counter_reset_hint:gauge}}
h + 1 =
h{a="1"} + h{a="1"} = {a="1"} {{count:40 sum:40 buckets:[10 20 10]}}
h{a="1"} - h{a="1"} = {a="1"} {{counter_reset_hint:gauge}}
h * on (a) f = {a="1"} {{count:40 sum:40 buckets:[10 20 10]}}
h == h{a="1"} = h{a="1"} {{count:20 sum:20 buckets:[5 10 5]}}
h{a="1"} </ 1 = h{a="1"} {{count:5 sum:3.5355339059327378 buckets:[5]}}
rate(h{a="1"}[2m]) = {a="1"} {{count:0.066666666 sum:0.066666666 buckets:[0.0166666666 0.03333333 0.0166666666]}}
rate(h{a="2"}[2m]) = {a="2"} {{count:0.03333333 sum:0.03333333 buckets:[0.0166666666 0.0166666666]}}
increase(h{a="2"}[3m]) = {a="2"} {{count:6 sum:6 buckets:[3 3]}}
irate(h{a="1"}[3m]) = {a="1"} {{count:0.066666666 sum:0.066666666 buckets:[0.0166666666 0.03333333 0.0166666666]}}
resets(h{a="2"}[5m]) = {a="2"} 1
changes(h{a="2"}[5m]) = {a="2"} 2
changes(mixed[5m]) = {} 4
sum_over_time(h{a="1"}[2m]) = {a="1"} {{count:36 sum:36 buckets:[9 18 9]}}
avg_over_time(h{a="1"}[2m]) = {a="1"} {{count:18 sum:18 buckets:[4.5 9 4.5]}}
count_over_time(mixed[5m]) = {} 5
present_over_time(h{a="1"}[2m]) = {a="1"} 1
last_over_time(h{a="1"}[2m]) = h{a="1"} {{count:20 sum:20 buckets:[5 10 5]}}
max_over_time(mixed[5m]) = {} 3
sum_over_time(mixed[5m]) =
abs(h) =
increase(h{a="1"}[2m] anchored) = {a="1"} {{count:8 sum:8 buckets:[2 4 2]}}
sum_over_time(h{a="1"}[3m:90s]) = {a="1"} {{count:24 sum:24 buckets:[6 12 6]}}
"""


def _evaluations() -> list[tuple[str, str]]:
    pairs = (line.split(" = ") if " = " in line else (line.removesuffix(" ="), "") for line in EVALUATIONS.split("\n"))
    return [(query, expected) for query, expected in pairs if query]


@pytest.mark.parametrize(("query", "expected"), _evaluations(), ids=lambda text: text)
def test_evaluations(tmp_path: Path, query: str, expected: str) -> None:
    """Each is also evaluated inside of a range and, fixed by `@`, at other times."""
    rows = f"  {expected}\n" if expected else ""
    script = tmp_path / "some.test"
    script.write_text(f"{LOADED}eval instant at 4m {query}\n{rows}\n")
    (outcome,) = run_script(script)
    assert outcome.state is State.PASSED, outcome


@pytest.mark.parametrize(
    ("query", "kind", "problem"),
    [
        ("h + 1", "info", 'incompatible sample types encountered for binary operator "+": histogram + float (1:1)'),
        ("1 * h * h", "info", 'incompatible sample types encountered for binary operator "*": histogram * histogram'),
        ("min(h)", "info", "ignored histogram in min aggregation (1:5)"),
        ("topk(1, h)", "info", "ignored histogram in topk aggregation (1:1)"),
        ("max_over_time(mixed[5m])", "info", "ignored histograms in a range containing both floats and histograms"),
        ("rate(gauge[5m])", "warn", 'this native histogram metric is not a counter: "gauge" (1:6)'),
        ("delta(h[5m])", "warn", 'this native histogram metric is not a gauge: "h" (1:7)'),
        ("rate(mixed[5m])", "warn", 'encountered a mix of histograms and floats for metric name "mixed" (1:6)'),
        ("sum({__name__=~'f|h'})", "warn", "encountered a mix of histograms and floats for aggregation"),
        ("sum({__name__=~'custom|h'})", "warn", "vector contains a mix of histograms with exponential and custom"),
        ("sum({__name__=~'custom|classic'})", "info", "mismatched custom buckets were reconciled during aggregation"),
        ("h + on () custom", "warn", "incompatible bucket layout encountered for binary operator +"),
        ("custom - on () classic", "info", "mismatched custom buckets were reconciled during subtraction"),
    ],
)
def test_annotations(tmp_path: Path, query: str, kind: str, problem: str) -> None:
    query = query.replace("h + on () custom", 'h{a="1"} + on () custom')
    script = tmp_path / "some.test"
    pattern = problem.replace("(", r"\(").replace(")", r"\)").replace("+", r"\+").replace("*", r"\*")
    script.write_text(f"{LOADED}eval instant at 4m {query}\n  expect {kind} regex: {pattern}\n")
    (outcome,) = run_script(script)
    # The runner compares annotations first; the script expects no series.
    assert outcome.state is State.PASSED or outcome.reason.startswith("expected 0 series"), outcome


def test_sums_over_windows_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(histogram_ranges, "MEMBERS_MAX", 3)
    script = tmp_path / "some.test"
    expected = "{{count:4}} {{count:12}} {{count:20}} {{count:28}}".replace("}}", " sum:0}}")
    script.write_text(
        "load 1m\n  h {{count:4}}+{{count:4}}x3\n  custom {{schema:-53 count:1 custom_values:[1] buckets:[1]}}x3\n\n"
        f"eval range from 0 to 3m step 1m sum_over_time(h[2m])\n  {{}} {expected}\n\n"
        "eval range from 0 to 3m step 1m count(sum_over_time({__name__=~'h|custom'}[2m]))\n  {} 2 2 2 2\n"
    )
    assert [outcome.state for outcome in run_script(script)] == [State.PASSED, State.PASSED]


def test_histograms_that_do_not_fit_into_memory_end_the_query() -> None:
    labels = (("__name__", "h"),)
    storage = HistogramStorage()
    value = HistogramValue(8, 1000, 1, positive=dict.fromkeys(range(1000), 1.0))
    storage.add_histograms(labels, ((minute * 60_000, value) for minute in range(60)))

    def hold(size: int) -> None:
        if size > 2_000_000:
            raise Overloaded(f"{size} bytes")

    options = QueryOptions(hold=hold)
    range_query("sum_over_time(h[5m])", storage, 0, 600_000, 60_000, options)
    with pytest.raises(Overloaded):
        range_query("sum_over_time(h[5m])", storage, 0, 3_600_000, 20_000, options)
    # Counts need no buckets.
    range_query("histogram_count(sum_over_time(h[5m]))", storage, 0, 3_600_000, 20_000, options)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # Prometheus drops buckets where counts and sums are asked for, so bounds have nothing to be reconciled.
        ("histogram_count(avg(custom))", "  expect no_info\n  {} 1"),
        ("avg(custom)", "  expect info\n  {} {{schema:-53 count:1 sum:0 custom_values:[1] buckets:[0 1]}}"),
        # A row of pairs without a meaning is no match, so it is not one of several.
        ("many - on () one", "  expect info"),
        ("topk(-1, custom)", "  expect no_info"),
        ("min((custom))", "  expect info msg:PromQL info: ignored histogram in min aggregation (1:6)"),
    ],
)
def test_what_random_queries_beside_prometheus_found(tmp_path: Path, query: str, expected: str) -> None:
    script = tmp_path / "some.test"
    script.write_text(
        "load 1m\n"
        "  custom{n='1'} {{schema:-53 count:1 custom_values:[1 2] buckets:[0 1]}}\n"
        "  custom{n='2'} {{schema:-53 count:1 custom_values:[1 3] buckets:[0 1]}}\n"
        "  many{n='1'} {{count:1}}\n  many{n='2'} {{count:1}}\n  one 1\n\n"
        f"eval instant at 0 {query}\n{expected}\n"
    )
    assert [str(outcome.state) for outcome in run_script(script)] == [str(State.PASSED)]


def test_a_zero_bucket_is_shown_where_it_has_observations() -> None:
    shown = shown_histograms(native(HistogramValue(0, 3, 6, 1, 0.5), HistogramValue(0, -3, -6, -1, 0.5)))
    assert list(shown) == ["{count:3, sum:6, [-0.5,0.5]:1}", "{count:-3, sum:-6}"]


def test_bounds_are_prometheus_own_to_the_bit() -> None:
    assert [bound_of(index, 8) for index in (128, 64, 32, 1)] == [
        1.414213562373095, 1.189207115002721, 1.0905077326652577, 1.0027112750502025,
    ]  # fmt: skip
    assert bound_of(3, 2) == 1.414213562373095 * 1.189207115002721


def test_a_sum_of_many_rates_equals_the_sums_of_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are computed for a part of the steps at a time, and memory for all of them is not asked for."""
    monkeypatch.setattr(histogram_groups, "PENDING_MAX", 7)
    storage, step_ms, steps = HistogramStorage(), 15_000, 40
    for number in range(5):
        samples = [
            (at * step_ms, HistogramValue(0, 3.0 * at, 2.0 * at, positive={1: 1.0 * at, 3 + number: 2.0 * at}))
            for at in range(number, steps)
        ]
        storage.add_histograms((("__name__", "h"), ("n", str(number))), samples)
    query = "histogram_quantile(0.9, sum(rate(h[1m])))"
    asked: list[int] = []
    whole = range_query(query, storage, 0, steps * step_ms, step_ms, QueryOptions(hold=asked.append)).value
    assert isinstance(whole, Block)
    for at in range(steps + 1):
        one = range_query(query, storage, at * step_ms, at * step_ms, step_ms).value
        assert isinstance(one, Block)
        here = bool(len(one)) and bool(one.present[0, 0])
        assert here == bool(whole.present[0, at]), at
        assert not here or one.values[0, 0] == whole.values[0, at], at
    all_rates: list[int] = []
    range_query("rate(h[1m])", storage, 0, steps * step_ms, step_ms, QueryOptions(hold=all_rates.append))
    assert max(asked) < max(all_rates)

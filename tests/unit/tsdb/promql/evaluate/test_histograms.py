"""Quantiles and fractions of classic histograms. Values are those of Prometheus 3.15, except where a bound is NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from tsdb.promql.evaluate.query import QueryOptions, instant_query
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import labels_of

OPTIONS = QueryOptions(ALL_FEATURES)


def values(query: str, buckets: Mapping[str, float]) -> list[float]:
    """Values of an instant query over one histogram `h_bucket`, in the order of the result."""
    storage = MemoryStorage()
    for bound, count in buckets.items():
        storage.add(labels_of({"__name__": "h_bucket", "le": bound}), [(0, count)])
    found = instant_query(query, storage, 0, OPTIONS).value
    assert isinstance(found, Block)
    return [float(row[0]) for row in found.values]


def warnings(query: str, bound: str) -> tuple[str, ...]:
    storage = MemoryStorage()
    storage.add(labels_of({"__name__": "h_bucket", "le": bound}), [(0, 1.0)])
    return instant_query(query, storage, 0, OPTIONS).warnings


NAN = {"NaN": 100.0, "1": 1.0, "2": 4.0, "+Inf": 10.0}


@pytest.mark.parametrize("name", ["NaN", "nan", "NAN"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("histogram_quantile(0.5, h_bucket)", [2.0]),
        ("histogram_quantile(0.05, h_bucket)", [0.5]),
        ("histogram_fraction(0, 1.5, h_bucket)", [0.25]),
        ("histogram_fraction(-Inf, +Inf, h_bucket)", [1.0]),
        ('histogram_quantiles(h_bucket, "q", 0.05, 0.25)', [0.5, 1.5]),
    ],
)
def test_a_bound_that_is_nan_is_ignored(query: str, expected: list[float], name: str) -> None:
    assert values(query, {name: 100.0, **{bound: count for bound, count in NAN.items() if bound != "NaN"}}) == expected


def test_without_another_bound_than_nan_there_is_no_number() -> None:
    (value,) = values("histogram_quantile(0.5, h_bucket)", {"NaN": 1.0})
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("bound", "number"),
    [
        ("0x1p3", 8.0),
        ("0X1.8P1", 3.0),
        ("1_0", 10.0),
        ("1_000.5e1", 10005.0),
        (".5e1", 5.0),
        ("+4", 4.0),
        ("4.", 4.0),
    ],
)
def test_bounds_are_read_as_go_reads_them(bound: str, number: float) -> None:
    buckets = {"0.25": 1.0, bound: 4.0, "+Inf": 10.0}
    assert values("histogram_quantile(0.99, h_bucket)", buckets) == [number]
    assert warnings("histogram_quantile(0.99, h_bucket)", bound) == ()


@pytest.mark.parametrize(
    "bound", ["1e400", "-1e400", "0x10", "0x1p9999", "+nan", "1__0", "_1", "1_", " 1", "1e", "", "infinit", "\u0661"]
)
def test_another_text_is_no_bound(bound: str) -> None:
    (warning,) = warnings("histogram_quantile(0.99, h_bucket)", bound)
    assert f'bucket label "le" is missing or has a malformed value of "{bound}"' in warning


@pytest.mark.parametrize("bound", ["inf", "Infinity", "+infinity", "Inf"])
def test_infinity_has_several_texts(bound: str) -> None:
    assert values("histogram_quantile(0.5, h_bucket)", {"1": 2.0, bound: 4.0}) == [1.0]


def test_each_quantile_adds_up_equal_bounds_again() -> None:
    buckets = {"1": 60.0, "1.0": 40.0, "2": 160.0, "+Inf": 200.0}
    assert values('histogram_quantiles(h_bucket, "q", 0.1, 0.5, 0.9)', buckets) == [0.2, 2.0, 2.0]
    assert values('histogram_quantiles(h_bucket, "q", 0.5)', buckets) == [1.0]
    # A quantile that needs no bucket adds none up.
    assert values('histogram_quantiles(h_bucket, "q", 2, 0.5)', buckets) == [math.inf, 1.0]


def test_counts_that_are_nan_leave_the_last_bound() -> None:
    assert values("histogram_quantile(0.5, h_bucket * NaN)", {"1": 1.0, "2": 4.0, "+Inf": 10.0}) == [2.0]
    (value,) = values("histogram_fraction(0, 1, h_bucket * NaN)", {"1": 1.0, "2": 4.0, "+Inf": 10.0})
    assert math.isnan(value)


def test_an_infinite_difference_is_named_as_go_names_it() -> None:
    storage = MemoryStorage()
    for bound, count in {"1": math.inf, "2": 1.0, "+Inf": 10.0}.items():
        storage.add(labels_of({"__name__": "h_bucket", "le": bound}), [(0, count)])
    (info,) = instant_query("histogram_quantile(0.5, h_bucket)", storage, 0, OPTIONS).infos
    assert "with a max diff of +Inf, over" in info

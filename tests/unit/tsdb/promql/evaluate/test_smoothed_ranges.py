"""A smoothed range vector has a value at each end, between the samples around it."""

from __future__ import annotations

import pytest

from tsdb.promql.evaluate.query import QueryOptions, instant_query
from tsdb.promql.evaluate.vectors.block import Samples
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.memory import MemoryStorage

LARGEST = 1.7976931348623157e308
INF = float("inf")


@pytest.mark.parametrize(
    ("samples", "first", "last"),
    [
        ([0.0, 10.0, 20.0], 5.0, 15.0),
        ([-LARGEST, LARGEST, -LARGEST], INF, -INF),
    ],
    ids=["line", "overflow"],
)
def test_the_ends_are_interpolated_as_prometheus_does(samples: list[float], first: float, last: float) -> None:
    storage = MemoryStorage()
    storage.add((("__name__", "x"),), [(60_000 * row, value) for row, value in enumerate(samples)])
    found = instant_query("x[1m] smoothed", storage, 90_000, QueryOptions(features=ALL_FEATURES)).value
    assert isinstance(found, Samples)
    assert found.ts_ms.tolist() == [30_000, 60_000, 90_000]
    assert found.values.tolist() == [first, samples[1], last]

"""Matching of two sides: series that match twice are an error where the other side has series, or is filled."""

from __future__ import annotations

import pytest

from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.query import QueryOptions, instant_query
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.rules.memory import MemoryStorage

OPTIONS = QueryOptions(features=ALL_FEATURES)


@pytest.fixture
def storage() -> MemoryStorage:
    found = MemoryStorage()
    for job in ("api", "web"):
        found.add((("__name__", "twice"), ("job", job)), [(0, 1.0)])
    return found


@pytest.mark.parametrize(
    "query",
    [
        "missing + ignoring (job) fill_right (-1) twice",
        "missing + ignoring (job) fill_left (-1) twice",
        "missing + ignoring (job) fill (-1) twice",
        "twice + ignoring (job) group_right () fill (-1) missing",
    ],
)
def test_a_side_without_series_that_is_filled_does_not_hide_a_second_match(storage: MemoryStorage, query: str) -> None:
    with pytest.raises(EvaluationError, match=r"found duplicate series for the match group \{\}"):
        instant_query(query, storage, 0, OPTIONS)


@pytest.mark.parametrize("query", ["missing + ignoring (job) twice", "twice + ignoring (job) group_right () missing"])
def test_a_side_without_series_hides_it_otherwise(storage: MemoryStorage, query: str) -> None:
    value = instant_query(query, storage, 0, OPTIONS).value
    assert isinstance(value, Block)
    assert len(value) == 0

"""Prepared queries: a text that comes again is not parsed again, and what is remembered is bounded."""

from __future__ import annotations

import pytest

from tsdb.promql.evaluate.query import Prepared, PreparedQueries
from tsdb.promql.syntax.features import ALL_FEATURES, Features
from tsdb.promql.syntax.tree import post_order
from tsdb.selector.tokens import QueryError

NONE = Features()


def test_a_text_that_comes_again_has_the_same_tree() -> None:
    queries = PreparedQueries()
    assert queries.of("sum(x)", NONE) is queries.of("sum(x)", NONE)


def test_other_features_are_another_query() -> None:
    queries = PreparedQueries()
    assert queries.of("mad_over_time(x[1m])", ALL_FEATURES)
    with pytest.raises(QueryError, match="mad_over_time"):
        queries.of("mad_over_time(x[1m])", NONE)


def test_the_query_that_was_used_longest_ago_goes_first() -> None:
    queries = PreparedQueries(chars_max=2)
    first = queries.of("a", NONE)
    queries.of("b", NONE)
    assert queries.of("a", NONE) is first
    queries.of("c", NONE)
    assert queries.of("a", NONE) is first
    assert len(queries) == 2


def test_a_long_text_and_an_error_are_not_remembered() -> None:
    queries = PreparedQueries(text_chars_max=3)
    queries.of("a + b", NONE)
    with pytest.raises(QueryError):
        queries.of("a +", NONE)
    assert len(queries) == 0


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("sum(x @ 1)", ["x @ 1", "sum(x @ 1)"]),
        ("x @ 1 + y", ["x @ 1"]),
        ("timestamp(x @ 1)", ["x @ 1"]),
        ("1 + 2", []),
        ("pi() + 2", ["pi()", "pi() + 2"]),
        ("sum_over_time(x[1m] @ 1)", ["x", "x[1m] @ 1", "sum_over_time(x[1m] @ 1)"]),
    ],
)
def test_nodes_with_one_value_at_all_steps_are_fixed(text: str, fixed: list[str]) -> None:
    query = Prepared(text, NONE)
    spans = [node.span for node in post_order(query.node) if query.is_fixed(node)]
    assert [text[span.start : span.end] for span in spans] == fixed

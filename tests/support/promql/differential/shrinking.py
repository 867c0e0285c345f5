"""Shrinking: from a query with a difference to the smallest one that is found to have one too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from support.promql.differential.answers import Query
from support.promql.differential.parts import all_nodes
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import Expression
from tsdb.selector.tokens import QueryError

TRIES_MAX = 400


def shrunk(query: Query, differs: Callable[[Query], bool]) -> Query:
    """Replace parts of a query by their own parts, and a range by one of its steps, as long as answers differ."""
    tries = TRIES_MAX
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(query):
            tries -= 1
            if tries <= 0:
                break
            if differs(smaller):
                query, progress = smaller, True
                break
    return query


def _smaller(query: Query) -> Iterator[Query]:
    """Shorter queries, the shortest first."""
    for text in sorted(set(_texts(query.text)), key=len):
        yield Query(text, query.start_ms, query.end_ms, query.step_ms)
    if query.step_ms is not None:
        for at_ms in range(query.start_ms, query.end_ms + 1, query.step_ms):
            yield Query(query.text, at_ms, at_ms)


def _texts(text: str) -> Iterator[str]:
    try:
        root = parse(text, ALL_FEATURES)
    except QueryError:
        return
    for node in all_nodes(root):
        for part in all_nodes(node):
            if part is not node:
                yield text[: node.span.start] + _text(text, part) + text[node.span.end :]


def _text(text: str, node: Expression) -> str:
    return text[node.span.start : node.span.end]

"""Explaining: shows the tree of an expression, with the series and the time of each part.

Each part is evaluated alone at the end of the range, under the bounds of queries. Times of parts contain those of the
parts below them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import orjson

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.api.prometheus.pages.query import instant_result
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown
from tsdb.promql.syntax.tree import Expression, NumberLiteral, Paren, StringLiteral, children
from tsdb.selector.tokens import QueryError
from tsdb.ui.answers.graph import times_of
from tsdb.ui.answers.table import query_of
from tsdb.ui.pages.page import PageCall

PARTS_MAX = 40
TEXT_CHARS_MAX = 300


@dataclass(frozen=True, slots=True)
class ExpressionNode:
    """A node of the tree. depth: 0 for the whole expression."""

    node: Expression
    depth: int


def explaining(asked: PageCall) -> bytes:
    """Answers `/ui/explain`: `rows` of the tree, each before the parts below it. Raises BadParameter and the errors of
    the storage."""
    call = asked.call
    start_ms, end_ms = times_of(call)
    query = query_of(call, start_ms, end_ms)
    try:
        parts = parts_of(parse(query.text, call.options.query.features))
    except QueryError as error:
        raise BadParameter("query", error.message) from error
    rows = [_row(call, one, end_ms) for one in parts[:PARTS_MAX]]
    answer = {"status": "success", "end_ms": end_ms, "rows": rows, "left_out": max(0, len(parts) - PARTS_MAX)}
    return orjson.dumps(answer)


def parts_of(root: Expression) -> list[ExpressionNode]:
    """The nodes of a tree, each before those below it. Literals and parentheses have no row."""
    found: list[ExpressionNode] = []
    pending = [ExpressionNode(root, 0)]
    while pending:
        part = pending.pop()
        is_row = not isinstance(part.node, Paren)
        if is_row:
            found.append(part)
        below = (one for one in children(part.node) if not isinstance(one, NumberLiteral | StringLiteral))
        pending.extend(ExpressionNode(one, part.depth + is_row) for one in reversed(tuple(below)))
    return found


def _row(call: ApiCall, part: ExpressionNode, end_ms: int) -> dict[str, Any]:
    text = shown(part.node)
    series: int | None = None
    seconds: float | None = None
    problem = ""
    began = time.perf_counter()
    try:
        value = instant_result(call, text, end_ms).found.value
        seconds = time.perf_counter() - began
        series = len(value.labels) if isinstance(value, Block | Samples) else None
    except (BadParameter, EvaluationError) as error:
        problem = str(error)
    return {
        "depth": part.depth,
        "text": valid_text(text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"),
        "kind": type_of(part.node).value,
        "series": series,
        "seconds": seconds,
        "error": valid_text(problem),
    }

"""Pages about the text of a query: `format_query` and `parse_query`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.envelope import Result, plain
from tsdb.model.selector import MATCH_TYPES, Matcher
from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.durations import duration_ms
from tsdb.promql.syntax.errors import QueryError
from tsdb.promql.syntax.functions import FUNCTIONS, Function
from tsdb.promql.syntax.numbers import shown_f
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown
from tsdb.promql.syntax.tree import (
    Aggregation,
    Binary,
    Call,
    Duration,
    Edge,
    Expression,
    Extension,
    MatrixSelector,
    NumberLiteral,
    Paren,
    StringLiteral,
    Subquery,
    Unary,
    ValueType,
    VectorSelector,
)

_SYMBOLS = {kind: symbol for symbol, kind in MATCH_TYPES.items()}
_TYPES = {
    ValueType.SCALAR: "scalar",
    ValueType.VECTOR: "vector",
    ValueType.MATRIX: "matrix",
    ValueType.STRING: "string",
}


def format_query(call: ApiCall) -> Result:
    """Answers `/api/v1/format_query`: the query as it is printed."""
    return plain(shown(_parsed(call)))


def parse_query(call: ApiCall) -> Result:
    """Answers `/api/v1/parse_query`: the tree of the query, in the form of Prometheus's UI."""
    return plain(tree_of(_parsed(call), call.form.get("query")))


def _parsed(call: ApiCall) -> Expression:
    call.running.text = call.form.get("query")
    try:
        return parse(call.running.text, call.options.query.features)
    except QueryError as error:
        raise BadParameter("query", error.message) from error


def tree_of(node: Expression | None, text: str) -> Any:
    """A node as dicts and lists. text: the query."""
    match node:
        case None:
            return None
        case Aggregation():
            return {
                "type": "aggregation",
                "op": node.operator,
                "expr": tree_of(node.operand, text),
                "param": tree_of(node.parameter, text),
                "grouping": list(node.labels),
                "without": node.without,
            }
        case Binary():
            return {
                "type": "binaryExpr",
                "op": node.operator,
                "lhs": tree_of(node.left, text),
                "rhs": tree_of(node.right, text),
                "matching": _matching(node),
                "bool": node.returns_bool,
            }
        case Call():
            args = [tree_of(arg, text) for arg in node.args]
            return {"type": "call", "func": _function(FUNCTIONS[node.name]), "args": args}
        case MatrixSelector():
            of_selector = {key: value for key, value in _selector(node.selector, text).items() if key != "type"}
            return {"type": "matrixSelector", "range": _milliseconds(node.range, text), **of_selector}
        case VectorSelector():
            return _selector(node, text)
        case Subquery():
            return {
                "type": "subquery",
                "expr": tree_of(node.expression, text),
                "range": _milliseconds(node.range, text),
                "offset": _milliseconds(node.offset, text),
                "step": _milliseconds(node.step, text),
                **_at(node.at),
            }
        case NumberLiteral():
            return {"type": "numberLiteral", "val": shown_f(node.value)}
        case StringLiteral():
            return {"type": "stringLiteral", "val": node.value}
        case Paren():
            return {"type": "parenExpr", "expr": tree_of(node.inner, text)}
        case Unary():
            return {"type": "unaryExpr", "op": node.operator, "expr": tree_of(node.operand, text)}


def _selector(node: VectorSelector, text: str) -> dict[str, Any]:
    return {
        "type": "vectorSelector",
        "name": node.name,
        "offset": _milliseconds(node.offset, text),
        "matchers": _matchers(node.matchers),
        **_at(node.at),
        "anchored": node.extension is Extension.ANCHORED,
        "smoothed": node.extension is Extension.SMOOTHED,
    }


def _matchers(matchers: Sequence[Matcher]) -> list[dict[str, str]]:
    return [{"name": one.name, "value": one.value, "type": _SYMBOLS[one.type]} for one in matchers]


def _at(at: int | Edge | None) -> dict[str, Any]:
    edge = at.value if isinstance(at, Edge) else None
    return {"timestamp": at if isinstance(at, int) else None, "startOrEnd": edge}


def _matching(node: Binary) -> dict[str, Any] | None:
    """None where a side is a number."""
    if ValueType.SCALAR in (type_of(node.left), type_of(node.right)):
        return None
    matching = node.matching
    return {
        "card": matching.cardinality.value,
        "labels": list(matching.labels),
        "on": matching.on,
        "include": list(matching.include),
        "fillValues": {"lhs": matching.fill_left, "rhs": matching.fill_right},
    }


def _function(function: Function) -> dict[str, Any]:
    return {
        "name": function.name,
        "argTypes": [_TYPES[kind] for kind in function.args],
        "variadic": -1 if function.repeats else function.optional,
        "returnType": _TYPES[function.result],
    }


def _milliseconds(duration: Duration | None, text: str) -> int:
    """0 without a duration. One of the step or range of a query is not known here, and counts as 0 too."""
    return 0 if duration is None else duration_ms(duration, text, 0, 0)

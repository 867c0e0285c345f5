"""Pages about the text of a query: `format_query` and `parse_query`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from tsdb.api.prometheus.answer import Result, json_of, plain
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.model.selector import MATCH_TYPES, Matcher
from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.durations import duration_ms
from tsdb.promql.syntax.functions import FUNCTIONS, Function
from tsdb.promql.syntax.numbers import shown_f
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown_lines
from tsdb.promql.syntax.tree import (
    Aggregation,
    Binary,
    Call,
    Duration,
    DurationBinary,
    DurationCall,
    DurationNumber,
    DurationParen,
    DurationUnary,
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
from tsdb.selector.tokens import QueryError

_SYMBOLS = {kind: symbol for symbol, kind in MATCH_TYPES.items()}
_TYPES = {
    ValueType.SCALAR: "scalar",
    ValueType.VECTOR: "vector",
    ValueType.MATRIX: "matrix",
    ValueType.STRING: "string",
}
FORMATTED_CHARS_MAX = 16 << 20
PIECE_BYTES = 64 << 10

_Part: TypeAlias = bytes | Expression


def format_query(call: ApiCall) -> Result:
    """Answers `/api/v1/format_query`: the query as Prometheus prints it, long expressions on several lines."""
    return plain(formatted(_parsed(call)))


def formatted(node: Expression) -> str:
    """The text of an expression, long ones on several lines. Raises BadParameter above FORMATTED_CHARS_MAX."""
    lines: list[str] = []
    size = 0
    for piece in shown_lines(node):
        lines.append(piece)
        size += len(piece)
        if size > FORMATTED_CHARS_MAX:
            problem = f"the formatted query has more than {FORMATTED_CHARS_MAX} characters"
            raise BadParameter("query", f"{problem}; a long chain of operators is indented once for each of them")
    return "".join(lines)


def parse_query(call: ApiCall) -> Result:
    """Answers `/api/v1/parse_query`: the tree of the query, in the form of Prometheus's UI."""
    return Result(tree_json(_parsed(call), call.form.get("query")))


def _parsed(call: ApiCall) -> Expression:
    call.running.text = call.form.get("query")
    try:
        return parse(call.running.text, call.options.query.features)
    except QueryError as error:
        raise BadParameter("query", error.message) from error


def tree_json(node: Expression, text: str) -> Iterator[bytes]:
    """JSON of a tree, in pieces of at least PIECE_BYTES. text: the query."""
    pending: list[_Part] = [node]
    piece = bytearray()
    while pending:
        part = pending.pop()
        if isinstance(part, bytes):
            piece += part
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        else:
            pending.extend(reversed(_parts(part, text)))
    yield bytes(piece)


def _parts(node: Expression, text: str) -> Sequence[_Part]:
    """JSON of a node, with the JSON of its child nodes inside."""
    match node:
        case Aggregation():
            return _object(
                {"type": "aggregation", "op": node.operator, "grouping": list(node.labels), "without": node.without},
                expr=[node.operand],
                param=[b"null" if node.parameter is None else node.parameter],
            )
        case Binary():
            plain_fields = {"type": "binaryExpr", "op": node.operator, "bool": node.returns_bool}
            return _object({**plain_fields, "matching": _matching(node)}, lhs=[node.left], rhs=[node.right])
        case Call():
            args = [part for arg in node.args for part in (b",", arg)]
            return _object({"type": "call", "func": _function(FUNCTIONS[node.name])}, args=[b"[", *args[1:], b"]"])
        case MatrixSelector():
            length = _duration("range", node.range, text)
            return _object({**_selector(node.selector, text), "type": "matrixSelector", **length})
        case VectorSelector():
            return _object(_selector(node, text))
        case Subquery():
            durations = {"range": node.range, "offset": node.offset, "step": node.step}
            fields = {
                key: value for name, one in durations.items() for key, value in _duration(name, one, text).items()
            }
            return _object({"type": "subquery", **fields, **_at(node.at)}, expr=[node.expression])
        case NumberLiteral():
            return _object({"type": "numberLiteral", "val": shown_f(node.value)})
        case StringLiteral():
            return _object({"type": "stringLiteral", "val": node.value})
        case Paren():
            return _object({"type": "parenExpr"}, expr=[node.inner])
        case Unary():
            return _object({"type": "unaryExpr", "op": node.operator}, expr=[node.operand])


def _object(fields: dict[str, Any], **nodes: Sequence[_Part]) -> Sequence[_Part]:
    """An object of plain fields, and of fields that have nodes."""
    parts: list[_Part] = [json_of(fields)[:-1]]
    for name, value in nodes.items():
        parts += [b',"%b":' % name.encode(), *value]
    return [*parts, b"}"]


def _selector(node: VectorSelector, text: str) -> dict[str, Any]:
    # The name before the braces comes last, as in Prometheus.
    matchers = [*node.matchers[1:], node.matchers[0]] if node.name else node.matchers
    return {
        "type": "vectorSelector",
        "name": node.name,
        **_duration("offset", node.offset, text),
        "matchers": _matchers(matchers),
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
    """The matching of a binary operator; None where a side is a number."""
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
        # One type stands for all arguments that may be left out.
        "argTypes": [_TYPES[kind] for kind in function.args[: function.args_min + 1]],
        "variadic": -1 if function.repeats else function.optional,
        "returnType": _TYPES[function.result],
    }


def _duration(name: str, duration: Duration | None, text: str) -> dict[str, Any]:
    """A number in milliseconds. The value of an expression depends on the query, so its tree stands beside a 0."""
    if duration is None or isinstance(duration, DurationNumber):
        return {name: 0 if duration is None else duration_ms(duration, text, 0, 0), f"{name}Expr": None}
    if isinstance(duration, DurationUnary) and duration.operator == "+" and name == "offset":
        # Prometheus keeps a plus only before a number or an expression in parentheses.
        tree = _duration_object("+", None, _duration_tree(duration.operand), is_wrapped=False)
        return {name: 0, f"{name}Expr": tree if isinstance(duration.operand, DurationCall) else tree["rhs"]}
    return {name: 0, f"{name}Expr": _duration_tree(duration)}


def _duration_tree(node: Duration, *, is_wrapped: bool = False) -> dict[str, Any]:
    """is_wrapped: whether it is in parentheses. A number in parentheses is an expression with a plus; other pluses are
    left out."""
    match node:
        case DurationNumber():
            number = {"type": "numberLiteral", "val": shown_f(node.seconds), "duration": node.is_duration}
            return _duration_object("+", None, number, is_wrapped) if is_wrapped else number
        case DurationParen():
            return _duration_tree(node.inner, is_wrapped=True)
        case DurationUnary() if node.operator == "+":
            return _duration_tree(node.operand, is_wrapped=is_wrapped)
        case DurationUnary():
            return _duration_object("-", None, _duration_tree(node.operand), is_wrapped)
        case DurationBinary():
            left, right = _duration_tree(node.left), _duration_tree(node.right)
            return _duration_object(node.operator, left, right, is_wrapped)
        case DurationCall():
            first, second = map(_duration_tree, node.args) if node.args else (None, None)
            return _duration_object(node.name, first, second, is_wrapped)


def _duration_object(
    operator: str, left: dict[str, Any] | None, right: dict[str, Any] | None, is_wrapped: bool
) -> dict[str, Any]:
    return {"type": "durationExpr", "op": operator, "lhs": left, "rhs": right, "wrapped": is_wrapped}

"""Runs of an instant query: as it is, and fixed by `@` to its time but evaluated at others, as Prometheus does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown
from tsdb.promql.syntax.tree import (
    Aggregation,
    Binary,
    Call,
    Edge,
    Expression,
    MatrixSelector,
    Paren,
    Subquery,
    Unary,
    VectorSelector,
    children,
)
from tsdb.selector.tokens import QueryError

# Their results depend on the time of evaluation, even where their arguments do not.
_OF_A_DATE = frozenset(
    {"days_in_month", "day_of_month", "day_of_week", "day_of_year", "hour", "minute", "month", "year"}
)
_TIME_DEPENDENT = _OF_A_DATE | {"predict_linear", "time", "timestamp", "start", "end"}


@dataclass(frozen=True, slots=True)
class Run:
    """An instant query and its time."""

    query: str
    at_ms: int


def runs(query: str, at_ms: int) -> Iterator[Run]:
    """The query itself, then those that must have the same result. A query with an error has no others."""
    yield Run(query, at_ms)
    try:
        node = parse(query, ALL_FEATURES)
    except QueryError:
        return
    if _is_time_dependent(node):
        return
    fixed = shown(_fixed(node, at_ms))
    others = (-10 * at_ms, 0, int(at_ms / 5), at_ms, 10 * at_ms) if at_ms else (-1000, 0, 1000)
    yield from (Run(fixed, other) for other in others)


def _is_time_dependent(node: Expression) -> bool:
    """A subquery gets a time, so inside of it nothing depends on the time of evaluation."""
    if isinstance(node, Subquery):
        return False
    return (isinstance(node, Call) and node.name in _TIME_DEPENDENT) or any(map(_is_time_dependent, children(node)))


def _fixed(node: Expression, at_ms: int) -> Expression:
    """The same expression with a time on each selector and subquery that has none."""
    match node:
        case VectorSelector():
            return replace(node, at=at_ms) if node.at is None or isinstance(node.at, Edge) else node
        case Subquery():
            return replace(node, at=at_ms) if node.at is None or isinstance(node.at, Edge) else node
        case MatrixSelector():
            selector = _fixed(node.selector, at_ms)
            assert isinstance(selector, VectorSelector)
            return replace(node, selector=selector)
        case Paren():
            return replace(node, inner=_fixed(node.inner, at_ms))
        case Unary():
            return replace(node, operand=_fixed(node.operand, at_ms))
        case Binary():
            return replace(node, left=_fixed(node.left, at_ms), right=_fixed(node.right, at_ms))
        case Aggregation():
            parameter = None if node.parameter is None else _fixed(node.parameter, at_ms)
            return replace(node, operand=_fixed(node.operand, at_ms), parameter=parameter)
        case Call():
            return replace(node, args=tuple(_fixed(arg, at_ms) for arg in node.args))
        case _:
            return node

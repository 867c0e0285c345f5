"""Parser of durations: of a range, a step and an offset."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.promql.syntax.cursor import Cursor
from tsdb.promql.syntax.durations import duration_ms, is_constant
from tsdb.promql.syntax.errors import QueryError, Span
from tsdb.promql.syntax.literals import duration_ms_of, number_of
from tsdb.promql.syntax.tokens import Kind
from tsdb.promql.syntax.tree import (
    Duration,
    DurationBinary,
    DurationCall,
    DurationNumber,
    DurationParen,
    DurationUnary,
)

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_SIGN = 3  # A sign binds tighter than * and less than ^.
_CALLS = {"step": 0, "range": 0, "min_of": 2, "max_of": 2}
NOT_POSITIVE = "duration must be greater than 0"


def positive_duration(cursor: Cursor, where: str) -> Duration:
    """A duration above 0: of a range or a step. One that depends on the query is checked when it is known."""
    node = _expression(cursor, 1, where)
    if is_constant(node) and duration_ms(node, cursor.text, 0, 0) <= 0:
        cursor.fail(NOT_POSITIVE, node.span)
    _check_enabled(cursor, node)
    return node


def offset_duration(cursor: Cursor) -> Duration:
    """A duration of any sign. Without parentheses it ends before an operator, which then belongs to the expression."""
    node = _signed(cursor, "offset", lambda: _primary(cursor, "offset"))
    if is_constant(node):
        duration_ms(node, cursor.text, 0, 0)
    _check_enabled(cursor, node)
    return node


def number_token(cursor: Cursor) -> tuple[float, bool, Span]:
    """Take a number or a duration: (value, in seconds for a duration; whether it is one; span)."""
    token = cursor.take()
    try:
        if token.kind is Kind.DURATION:
            return duration_ms_of(token.text) / 1000, True, token.span
        return number_of(token.text), False, token.span
    except (ValueError, OverflowError) as error:
        raise QueryError(str(error), cursor.text, token.span) from None


def _expression(cursor: Cursor, least: int, where: str) -> Duration:
    with cursor.nested():
        left = _signed(cursor, where, lambda: _expression(cursor, _SIGN, where))
        while cursor.token.kind is Kind.SYMBOL and _PRECEDENCE.get(cursor.token.text, 0) >= least:
            operator = cursor.take().text
            level = _PRECEDENCE[operator]
            right = _expression(cursor, level if operator == "^" else level + 1, where)
            left = DurationBinary(operator, left, right, left.span.to(right.span))
        return left


def _signed(cursor: Cursor, where: str, operand: Callable[[], Duration]) -> Duration:
    token = cursor.token
    if not (token.is_symbol("-") or token.is_symbol("+")):
        return _primary(cursor, where)
    cursor.take()
    node: Duration = operand()
    span = token.span.to(node.span)
    if isinstance(node, DurationNumber):
        return DurationNumber(-node.seconds if token.text == "-" else node.seconds, node.is_duration, span)
    return DurationUnary(token.text, node, span)


def _primary(cursor: Cursor, where: str) -> Duration:
    token = cursor.token
    if token.kind in (Kind.NUMBER, Kind.DURATION):
        return DurationNumber(*number_token(cursor))
    if token.is_symbol("("):
        cursor.take()
        inner = _expression(cursor, 1, where)
        cursor.expect(")", where)
        return DurationParen(inner, cursor.span_from(token.span))
    if token.word not in _CALLS:
        cursor.fail_unexpected(where, "number, duration, step(), or range()")
    cursor.take()
    return _call(cursor, token.word, token.span)


def _call(cursor: Cursor, name: str, start: Span) -> DurationCall:
    cursor.expect("(", f"{name}()")
    args: list[Duration] = []
    for index in range(_CALLS[name]):
        if index:
            cursor.expect(",", f"{name}()")
        args.append(_expression(cursor, 1, f"{name}()"))
    cursor.expect(")", f"{name}()")
    return DurationCall(name, tuple(args), cursor.span_from(start))


def _check_enabled(cursor: Cursor, node: Duration) -> None:
    if not isinstance(node, DurationNumber) and not cursor.features.duration_expressions:
        cursor.fail("experimental duration expression is not enabled", node.span)

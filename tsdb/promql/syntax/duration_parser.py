"""Parses the durations of a range, a step and an offset."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.promql.syntax.durations import duration_ms
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.literals import duration_ms_of, number_of
from tsdb.promql.syntax.tree import (
    Duration,
    DurationBinary,
    DurationCall,
    DurationNumber,
    DurationParen,
    DurationUnary,
)
from tsdb.selector.tokens import Cursor, QueryError, TextSpan, TokenKind

PARTS_MAX = 50  # Parts of one duration. Its tree is walked by recursion.
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 3}
_SIGN = 3  # A sign binds tighter than * and less than ^.
_CALLS = {"step": 0, "range": 0, "min_of": 2, "max_of": 2}


def positive_duration(cursor: Cursor, features: Features, where: str) -> Duration:
    """A duration of a range or a step. If it is an expression, its value is checked later, when the steps of the query
    are known."""
    node = _Parser(cursor, where).expression(1)
    if isinstance(node, DurationNumber):
        duration_ms(node, cursor.text, 0, 0, is_positive=True)
    _check_enabled(cursor, features, node)
    return node


def offset_duration(cursor: Cursor, features: Features) -> Duration:
    """A duration of any sign. It ends before an operator, which then belongs to the expression.

    As in Prometheus, a duration that begins with a parenthesis or with two signs continues behind an operator.
    """
    parser = _Parser(cursor, "offset")
    token, following = cursor.token, cursor.following
    is_signed_twice = token.is_sign and following.is_sign
    node = parser.expression(1) if token.symbol == "(" or is_signed_twice else parser.signed(parser.primary)
    if isinstance(node, DurationNumber):
        duration_ms(node, cursor.text, 0, 0)
    _check_enabled(cursor, features, node)
    return node


def number_token(cursor: Cursor) -> tuple[float, bool, TextSpan]:
    """Take a number or a duration: (value, in seconds for a duration; whether it is one; span)."""
    token = cursor.take()
    try:
        if token.kind is TokenKind.DURATION:
            return duration_ms_of(token.text) / 1000, True, token.span
        return number_of(token.text), False, token.span
    except (ValueError, OverflowError) as error:
        raise QueryError(str(error), cursor.text, token.span) from None


class _Parser:
    """Parser of one duration. where: its role in the query, for error messages."""

    def __init__(self, cursor: Cursor, where: str) -> None:
        self.cursor = cursor
        self.where = where
        self.parts = 0

    def expression(self, least: int) -> Duration:
        cursor = self.cursor
        left = self.signed(lambda: self.expression(_SIGN))
        while cursor.token.kind is TokenKind.SYMBOL and _PRECEDENCE.get(cursor.token.text, 0) >= least:
            operator = cursor.take()
            level = _PRECEDENCE[operator.text]
            right = self.expression(level if operator.text == "^" else level + 1)
            if operator.text in "/%" and isinstance(right, DurationNumber) and right.seconds == 0:
                cursor.fail("division by zero" if operator.text == "/" else "modulo by zero", operator.span)
            left = DurationBinary(operator.text, left, right, left.span.to(right.span))
        return left

    def signed(self, operand: Callable[[], Duration]) -> Duration:
        cursor = self.cursor
        token = cursor.token
        self.parts += 1
        if self.parts > PARTS_MAX:
            cursor.fail(f"duration has more than {PARTS_MAX} parts")
        if not token.is_sign:
            return self.primary()
        cursor.take()
        node = operand()
        span = token.span.to(node.span)
        if isinstance(node, DurationNumber):
            return DurationNumber(-node.seconds if token.text == "-" else node.seconds, node.is_duration, span)
        return DurationUnary(token.text, node, span)

    def primary(self) -> Duration:
        cursor = self.cursor
        token = cursor.token
        if token.kind in (TokenKind.NUMBER, TokenKind.DURATION):
            return DurationNumber(*number_token(cursor))
        if token.symbol == "(":
            cursor.take()
            inner = self.expression(1)
            cursor.expect(")", self.where)
            return DurationParen(inner, cursor.span_from(token.span))
        if token.word not in _CALLS:
            cursor.fail_unexpected(self.where, "number, duration, step(), or range()")
        cursor.take()
        return self.call(token.word, token.span)

    def call(self, name: str, start: TextSpan) -> DurationCall:
        cursor = self.cursor
        cursor.expect("(", f"{name}()")
        args: list[Duration] = []
        for index in range(_CALLS[name]):
            if index:
                cursor.expect(",", f"{name}()")
            args.append(self.expression(1))
        cursor.expect(")", f"{name}()")
        return DurationCall(name, tuple(args), cursor.span_from(start))


def _check_enabled(cursor: Cursor, features: Features, node: Duration) -> None:
    if not isinstance(node, DurationNumber) and not features.duration_expressions:
        cursor.fail("experimental duration expression is not enabled", node.span)

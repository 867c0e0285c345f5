"""Value of a duration expression, once step and range of the query are known."""

from __future__ import annotations

import math

from tsdb.promql.syntax.literals import DURATION_MS_MAX
from tsdb.promql.syntax.tree import (
    Duration,
    DurationBinary,
    DurationCall,
    DurationNumber,
    DurationParen,
    DurationUnary,
)
from tsdb.selector.tokens import QueryError

NOT_POSITIVE = "duration must be greater than 0"


def duration_ms(node: Duration, text: str, step_ms: int, range_ms: int, *, is_positive: bool = False) -> int:
    """The duration in milliseconds, rounded to nanoseconds and then truncated. step_ms, range_ms: step and range of the
    query. is_positive: whether it must be above 0.

    Raises QueryError for a division by zero and for more than 292 years.
    """
    seconds = _seconds(node, text, step_ms, range_ms)
    if math.isnan(seconds) or abs(seconds) * 1000 > DURATION_MS_MAX:
        raise QueryError("duration out of range", text, node.span)
    if is_positive and seconds <= 0:
        raise QueryError(NOT_POSITIVE, text, node.span)
    return math.trunc(round(seconds * 1e9) / 1_000_000)


def _seconds(node: Duration, text: str, step_ms: int, range_ms: int) -> float:
    match node:
        case DurationNumber():
            return node.seconds
        case DurationParen():
            return _seconds(node.inner, text, step_ms, range_ms)
        case DurationUnary():
            value = _seconds(node.operand, text, step_ms, range_ms)
            return -value if node.operator == "-" else value
        case DurationCall():
            args = [_seconds(arg, text, step_ms, range_ms) for arg in node.args]
            return _called(node.name, args, step_ms, range_ms)
        case DurationBinary():
            left = _seconds(node.left, text, step_ms, range_ms)
            return _combined(node, left, _seconds(node.right, text, step_ms, range_ms), text)


def _called(name: str, args: list[float], step_ms: int, range_ms: int) -> float:
    match name:
        case "step":
            return step_ms / 1000
        case "range":
            return range_ms / 1000
        case "min_of":
            return min(args)
        case _:
            return max(args)


def _combined(node: DurationBinary, left: float, right: float, text: str) -> float:
    if node.operator in "/%" and right == 0:
        raise QueryError("division by zero" if node.operator == "/" else "modulo by zero", text, node.span)
    match node.operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "%":
            return math.fmod(left, right)
        case _:
            return _power(left, right)


def _power(base: float, exponent: float) -> float:
    try:
        value = math.pow(base, exponent)
    except (OverflowError, ValueError):
        return math.nan
    return value

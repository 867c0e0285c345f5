"""Printer: the text of a tree, which parses back to an equal tree. Parentheses are those of the tree."""

from __future__ import annotations

import re

from tsdb.model.selector import MATCH_TYPES, Matcher, MatchType
from tsdb.promql.syntax.literals import PLAIN_LABEL, quoted, shown_duration
from tsdb.promql.syntax.numbers import shown_number
from tsdb.promql.syntax.selectors import METRIC_NAME
from tsdb.promql.syntax.tree import (
    Aggregation,
    Binary,
    Call,
    Cardinality,
    Duration,
    DurationBinary,
    DurationCall,
    DurationNumber,
    DurationParen,
    DurationUnary,
    Edge,
    Expression,
    Extension,
    Matching,
    MatrixSelector,
    NumberLiteral,
    Paren,
    StringLiteral,
    Subquery,
    Unary,
    VectorSelector,
)

_PLAIN_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SYMBOLS = {kind: symbol for symbol, kind in MATCH_TYPES.items()}


def shown(node: Expression) -> str:
    """The text of an expression, on one line."""
    match node:
        case NumberLiteral():
            return _number(node.value, node.is_duration)
        case StringLiteral():
            return quoted(node.value)
        case VectorSelector():
            return _selector(node) + _extension(node) + _modifiers(node)
        case MatrixSelector():
            one = node.selector
            return f"{_selector(one)}[{shown_duration_expression(node.range)}]{_extension(one)}{_modifiers(one)}"
        case Subquery():
            step = "" if node.step is None else shown_duration_expression(node.step)
            return f"{shown(node.expression)}[{shown_duration_expression(node.range)}:{step}]{_modifiers(node)}"
        case Paren():
            return f"({shown(node.inner)})"
        case Unary():
            return node.operator + shown(node.operand)
        case Binary():
            returns_bool = " bool" if node.returns_bool else ""
            operator = f"{node.operator}{returns_bool}{_matching(node.matching)}"
            return f"{shown(node.left)} {operator} {shown(node.right)}"
        case Aggregation():
            return _aggregation(node)
        case Call():
            return f"{node.name}({', '.join(map(shown, node.args))})"


def shown_duration_expression(node: Duration) -> str:
    """The text of a duration."""
    match node:
        case DurationNumber():
            return _number(node.seconds, node.is_duration)
        case DurationParen():
            return f"({shown_duration_expression(node.inner)})"
        case DurationUnary():
            return node.operator + shown_duration_expression(node.operand)
        case DurationCall():
            return f"{node.name}({', '.join(map(shown_duration_expression, node.args))})"
        case DurationBinary():
            left, right = shown_duration_expression(node.left), shown_duration_expression(node.right)
            return f"{left} {node.operator} {right}"


def _number(value: float, is_duration: bool) -> str:
    return shown_duration(round(value * 1000)) if is_duration else shown_number(value)


def _selector(node: VectorSelector) -> str:
    matchers = node.matchers[1:] if node.name else node.matchers
    if not matchers and node.name:
        return node.name
    return f"{node.name}{{{', '.join(map(_matcher, matchers))}}}"


def _matcher(matcher: Matcher) -> str:
    if matcher.name == METRIC_NAME and matcher.type is MatchType.EQUAL and not _PLAIN_NAME.fullmatch(matcher.value):
        return quoted(matcher.value)
    return f"{_label(matcher.name)}{_SYMBOLS[matcher.type]}{quoted(matcher.value)}"


def _label(name: str) -> str:
    return name if PLAIN_LABEL.fullmatch(name) else quoted(name)


def _labels(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(_label, names))})"


def _extension(node: VectorSelector) -> str:
    return "" if node.extension is Extension.NONE else f" {node.extension.value}"


def _modifiers(node: VectorSelector | Subquery) -> str:
    text = ""
    if isinstance(node.at, Edge):
        text += f" @ {node.at.value}()"
    elif node.at is not None:
        text += f" @ {node.at / 1000:.3f}"
    if node.offset is not None:
        text += f" offset {shown_duration_expression(node.offset)}"
    return text


def _matching(matching: Matching) -> str:
    text = ""
    if matching.is_written:
        text += f" {'on' if matching.on else 'ignoring'} {_labels(matching.labels)}"
    if matching.cardinality in (Cardinality.MANY_TO_ONE, Cardinality.ONE_TO_MANY):
        side = "left" if matching.cardinality is Cardinality.MANY_TO_ONE else "right"
        text += f" group_{side} {_labels(matching.include)}"
    # Both sides by `fill` when they are the same; NaN is not equal to itself.
    left, right = (None if fill is None else shown_number(fill) for fill in (matching.fill_left, matching.fill_right))
    if left is not None and left == right:
        return f"{text} fill ({left})"
    text += "" if left is None else f" fill_left ({left})"
    return text + ("" if right is None else f" fill_right ({right})")


def _aggregation(node: Aggregation) -> str:
    grouping = ""
    if node.has_grouping and (node.labels or node.without):
        grouping = f" {'without' if node.without else 'by'} {_labels(node.labels)} "
    parameter = "" if node.parameter is None else f"{shown(node.parameter)}, "
    return f"{node.operator}{grouping}({parameter}{shown(node.operand)})"

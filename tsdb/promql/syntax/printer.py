"""Printer: the text of a tree, as Prometheus prints it. Parentheses are those of the tree; matchers are sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tsdb.model.selector import MATCH_TYPES, Matcher
from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.literals import shown_duration
from tsdb.promql.syntax.numbers import shown_f, shown_g
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
    MatchCardinality,
    MatrixSelector,
    NumberLiteral,
    Paren,
    StringLiteral,
    Subquery,
    Unary,
    ValueType,
    VectorSelector,
    post_order,
)
from tsdb.selector.tokens import PLAIN_LABEL, quoted

LINE_BYTES_MAX = 100
INDENT = "  "
_SYMBOLS = {kind: symbol for symbol, kind in MATCH_TYPES.items()}

Part: TypeAlias = str | Expression


def shown(node: Expression) -> str:
    """The text of an expression, on one line."""
    out: list[str] = []
    pending: list[Part] = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            out.append(part)
        else:
            pending.extend(reversed(_parts(part)))
    return "".join(out)


def shown_lines(node: Expression) -> Iterator[str]:
    """The text of an expression in pieces: an expression of more than LINE_BYTES_MAX takes several lines.

    A chain of n operators gives up to n * n blanks, since its first operand is the deepest.
    """
    wide = _wide(node)
    pending: list[str | _Block] = [_Block(node, 0)]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            yield part
        elif id(part.node) in wide:
            pending.extend(reversed(_split(part)))
        else:
            # A subquery is never indented itself, as in Prometheus.
            yield ("" if isinstance(part.node, Subquery) else part.indent) + shown(part.node)


@dataclass(frozen=True, slots=True)
class _Block:
    """An expression that begins a line at a level. follows: it stands behind a sign instead, without an indent."""

    node: Expression
    level: int
    follows: bool = False

    @property
    def indent(self) -> str:
        return "" if self.follows else INDENT * self.level


def _split(block: _Block) -> list[str | _Block]:
    """The lines of an expression that is too long for one."""
    node, level, indent = block.node, block.level, block.indent
    closing = f"\n{INDENT * level})"
    match node:
        case Aggregation():
            parameter: list[str | _Block] = [] if node.parameter is None else [_Block(node.parameter, level + 1), ",\n"]
            return [f"{indent}{_aggregation(node)}(\n", *parameter, _Block(node.operand, level + 1), closing]
        case Binary():
            operator = f"\n{INDENT * level}{_operator(node)}\n"
            return [_Block(node.left, level + 1, block.follows), operator, _Block(node.right, level + 1)]
        case Call():
            args = [part for arg in node.args for part in (",\n", _Block(arg, level + 1))]
            return [f"{indent}{node.name}(\n", *args[1:], closing]
        case Paren():
            return [f"{indent}(\n", _Block(node.inner, level + 1), closing]
        case Subquery():
            return [_Block(node.expression, level, block.follows), _subquery_suffix(node)]
        case Unary():
            return [f"{indent}{node.operator}", _Block(node.operand, level, follows=True)]
        case _:
            return [indent + shown(node)]


def _wide(root: Expression) -> set[int]:
    """Identities of the nodes whose text on one line is longer than LINE_BYTES_MAX."""
    sizes: dict[int, int] = {}
    wide: set[int] = set()
    for node in post_order(root):
        size = sum(
            len(part.encode(errors="surrogateescape")) if isinstance(part, str) else sizes[id(part)]
            for part in _parts(node)
        )
        sizes[id(node)] = size
        if size > LINE_BYTES_MAX:
            wide.add(id(node))
    return wide


def _parts(node: Expression) -> Sequence[Part]:
    """The text of a node and its child nodes, on one line."""
    match node:
        case NumberLiteral():
            return (_number(node.value, node.is_duration),)
        case StringLiteral():
            return (quoted(node.value),)
        case VectorSelector():
            return (_selector(node) + _at(node) + _extension(node) + _offset(node),)
        case MatrixSelector():
            one = node.selector
            return (f"{_selector(one)}[{_length(node.range)}]{_extension(one)}{_at(one)}{_offset(one)}",)
        case Subquery():
            return node.expression, _subquery_suffix(node)
        case Paren():
            return "(", node.inner, ")"
        case Unary():
            return node.operator, node.operand
        case Binary():
            return node.left, f" {_operator(node)} ", node.right
        case Aggregation():
            parameter: Sequence[Part] = () if node.parameter is None else (node.parameter, ", ")
            return f"{_aggregation(node)}(", *parameter, node.operand, ")"
        case Call():
            args = [part for arg in node.args for part in (", ", arg)]
            return f"{node.name}(", *args[1:], ")"


def _length(node: Duration) -> str:
    """A range, a step or an offset: a number by itself is printed as a duration."""
    if isinstance(node, DurationNumber):
        return shown_duration(int(round(node.seconds * 1e9) / 1_000_000))
    return _expression(node)


def _expression(node: Duration) -> str:
    match node:
        case DurationNumber():
            return _number(node.seconds, node.is_duration)
        case DurationParen():
            while isinstance(node.inner, DurationParen):
                node = node.inner
            return f"({_expression(node.inner)})"
        case DurationUnary():
            return ("-" if node.operator == "-" else "") + _expression(node.operand)
        case DurationCall():
            return f"{node.name}({', '.join(map(_expression, node.args))})"
        case DurationBinary():
            return f"{_expression(node.left)} {node.operator} {_expression(node.right)}"


def _number(value: float, is_duration: bool) -> str:
    return shown_duration(round(value * 1000)) if is_duration else shown_f(value)


def _selector(node: VectorSelector) -> str:
    matchers = node.matchers[1:] if node.name else node.matchers
    if not matchers:
        return node.name or "{}"
    texts = sorted(map(_matcher, matchers), key=lambda text: text.encode(errors="surrogateescape"))
    return f"{node.name}{{{','.join(texts)}}}"


def _matcher(matcher: Matcher) -> str:
    return f"{_label(matcher.name)}{_SYMBOLS[matcher.type]}{quoted(matcher.value)}"


def _label(name: str) -> str:
    return name if PLAIN_LABEL.fullmatch(name) else quoted(name)


def _labels(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(_label, names))})"


def _extension(node: VectorSelector) -> str:
    return "" if node.extension is Extension.NONE else f" {node.extension.value}"


def _at(node: VectorSelector | Subquery) -> str:
    if isinstance(node.at, Edge):
        return f" @ {node.at.value}()"
    return "" if node.at is None else f" @ {node.at / 1000:.3f}"


def _offset(node: VectorSelector | Subquery) -> str:
    if node.offset is None or (isinstance(node.offset, DurationNumber) and node.offset.seconds == 0):
        return ""
    return f" offset {_length(node.offset)}"


def _subquery_suffix(node: Subquery) -> str:
    step = "" if node.step is None else _length(node.step)
    return f"[{_length(node.range)}:{step}]{_at(node)}{_offset(node)}"


def _operator(node: Binary) -> str:
    return f"{node.operator}{' bool' if node.returns_bool else ''}{_matching(node)}"


def _matching(node: Binary) -> str:
    if ValueType.SCALAR in (type_of(node.left), type_of(node.right)):
        return ""
    matching, text = node.matching, ""
    is_grouped = matching.cardinality in (MatchCardinality.MANY_TO_ONE, MatchCardinality.ONE_TO_MANY)
    if matching.labels or matching.on or is_grouped:
        text += f" {'on' if matching.on else 'ignoring'} {_labels(matching.labels)}"
    if is_grouped:
        side = "left" if matching.cardinality is MatchCardinality.MANY_TO_ONE else "right"
        text += f" group_{side} {_labels(matching.include)}"
    left, right = (None if fill is None else shown_g(fill) for fill in (matching.fill_left, matching.fill_right))
    # One `fill` for both sides when they are equal; NaN is not equal to itself.
    if left is not None and matching.fill_left == matching.fill_right:
        return f"{text} fill ({left})"
    text += "" if left is None else f" fill_left ({left})"
    return text + ("" if right is None else f" fill_right ({right})")


def _aggregation(node: Aggregation) -> str:
    """The text of an aggregation before its parentheses."""
    if not node.labels and not node.without:
        return node.operator
    return f"{node.operator} {'without' if node.without else 'by'} {_labels(node.labels)} "

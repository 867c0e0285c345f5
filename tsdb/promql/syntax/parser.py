"""Parses PromQL by operator precedence (Pratt, Top down operator precedence, POPL 1973).

Types are checked as the tree grows, so a query that cannot be evaluated fails before anything is read. An error of
types is raised only when the whole text has no error of syntax. A method that returns a Step is a step of a recursion
(`syntax.tree.result_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from tsdb.promql.syntax import check
from tsdb.promql.syntax.duration_parser import number_token, offset_duration, positive_duration
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.functions import AGGREGATIONS, EXPERIMENTAL_AGGREGATIONS, FUNCTIONS
from tsdb.promql.syntax.numbers import shown_g
from tsdb.promql.syntax.tree import (
    SET_OPERATORS,
    Aggregation,
    Binary,
    Call,
    Edge,
    Expression,
    Extension,
    MatchCardinality,
    Matching,
    MatrixSelector,
    NumberLiteral,
    Paren,
    Step,
    StringLiteral,
    Subquery,
    Unary,
    ValueType,
    VectorSelector,
    result_of,
)
from tsdb.selector.selectors import labels, selector
from tsdb.selector.tokens import Cursor, QueryError, TokenKind

Checked = TypeVar("Checked")

PARTS_MAX = 100_000  # Nodes of the tree, some 300 bytes each.

_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys(("==", "!=", "<=", "<", ">=", ">", "</", ">/"), 3),
    "+": 4,
    "-": 4,
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
_POWER = 6
_NUMBERS = {"inf": math.inf, "nan": math.nan}
_FILLS: tuple[str, ...] = ("fill", "fill_left", "fill_right")
_TIME_MS_MAX = 2**63 - 1


def parse(text: str, features: Features = Features()) -> Expression:
    """The checked tree of a query. Raises QueryError with line and column of the first problem."""
    cursor = Cursor(text)
    if cursor.at_end:
        cursor.fail("no expression found in input")
    parser = _Parser(cursor, features)
    node = result_of(parser.expression(1))
    if not cursor.at_end:
        cursor.fail_unexpected("")
    if parser.problem is not None:
        raise parser.problem
    return node


class _Parser:
    def __init__(self, cursor: Cursor, features: Features) -> None:
        self.cursor = cursor
        self.features = features
        self.parts = 0
        # The first error of types. It is reported last, because syntax errors of the whole text come before it.
        self.problem: QueryError | None = None

    def expression(self, least: int) -> Step[Expression]:
        """An expression whose operators have at least this precedence."""
        self.cursor.enter()
        # Most operands have no parts. They need no step of the recursion.
        left = self.leaf() or (yield self.unary())
        while _PRECEDENCE.get(self.operator(), 0) >= least:
            left = yield self.binary(left)
        self.cursor.leave()
        return left

    def operator(self) -> str:
        token = self.cursor.token
        return token.symbol or token.word

    def binary(self, left: Expression) -> Step[Expression]:
        cursor = self.cursor
        start = cursor.token.span
        operator = self.operator()
        cursor.take()
        returns_bool = cursor.skip_word("bool")
        matching = self.matching(operator)
        operator_span = cursor.span_from(start)
        level = _PRECEDENCE[operator]
        right: Expression = yield self.expression(level if operator == "^" else level + 1)
        scalars = check.type_of(left) is check.type_of(right) is ValueType.SCALAR
        kind = ValueType.SCALAR if scalars else ValueType.VECTOR
        node = Binary(operator, left, right, matching, returns_bool, kind, operator_span, left.span.to(right.span))
        self.check(check.check_binary, node)
        return self.made(node)

    def matching(self, operator: str) -> Matching:
        """Modifiers between an operator and its right side."""
        cursor = self.cursor
        found = Matching(MatchCardinality.MANY_TO_MANY if operator in SET_OPERATORS else MatchCardinality.ONE_TO_ONE)
        word = cursor.token.word
        if word in ("on", "ignoring"):
            cursor.take()
            found = replace(found, on=word == "on", labels=labels(cursor, "grouping opts"))
            word = cursor.token.word
            if word in ("group_left", "group_right"):
                cursor.take()
                cardinality = MatchCardinality.MANY_TO_ONE if word == "group_left" else MatchCardinality.ONE_TO_MANY
                include = labels(cursor, "grouping opts") if cursor.token.symbol == "(" else ()
                found = replace(found, cardinality=cardinality, include=include)
        # Either `fill`, or one for each side.
        expected = _FILLS
        while cursor.token.word in expected and cursor.following.symbol == "(":
            word = cursor.token.word
            found = self.filled(found)
            expected = () if word == "fill" else tuple(one for one in expected if one not in ("fill", word))
        return found

    def filled(self, matching: Matching) -> Matching:
        cursor = self.cursor
        token = cursor.take()
        if not self.features.binop_fill_modifiers:
            cursor.fail("binop fill modifiers are experimental and not enabled", token.span)
        cursor.expect("(", token.word)
        value = self.signed_number(token.word)
        cursor.expect(")", token.word)
        left = value if token.word != "fill_right" else matching.fill_left
        right = value if token.word != "fill_left" else matching.fill_right
        return replace(matching, fill_left=left, fill_right=right)

    def unary(self) -> Step[Expression]:
        cursor = self.cursor
        token = cursor.token
        if not token.is_sign:
            primary: Expression = yield self.primary()
            return self.postfix(primary)
        cursor.take()
        operand: Expression = yield self.expression(_POWER)
        span = token.span.to(operand.span)
        if isinstance(operand, NumberLiteral):
            value = -operand.value if token.text == "-" else operand.value
            return self.made(NumberLiteral(value, operand.is_duration, span))
        node = Unary(token.text, operand, span)
        self.check(check.check_unary, node)
        return self.made(node)

    def leaf(self) -> Expression | None:
        """A number, a string or a selector, with its ranges and modifiers. None at any other token."""
        cursor = self.cursor
        token = cursor.token
        node: Expression
        if token.kind is TokenKind.NAME:
            following = cursor.following
            if token.word in _NUMBERS:
                cursor.take()
                node = NumberLiteral(_NUMBERS[token.word], False, token.span)
            elif following.symbol == "(" or (token.word in AGGREGATIONS and following.word in ("by", "without")):
                return None
            else:
                node = VectorSelector(*selector(cursor))
        elif token.symbol == "{":
            node = VectorSelector(*selector(cursor))
        elif token.kind is TokenKind.STRING:
            node = StringLiteral(cursor.string(), token.span)
        elif token.kind in (TokenKind.NUMBER, TokenKind.DURATION):
            node = NumberLiteral(*number_token(cursor))
        else:
            return None
        return self.postfix(self.made(node))

    def primary(self) -> Step[Expression]:
        """A call, an aggregation or an expression in parentheses."""
        cursor = self.cursor
        token = cursor.token
        if token.symbol == "(":
            cursor.take()
            inner: Expression = yield self.expression(1)
            cursor.expect(")", "parenthesised expression")
            return self.made(Paren(inner, cursor.span_from(token.span)))
        if token.kind is not TokenKind.NAME:
            cursor.fail_unexpected("")
        if token.word in AGGREGATIONS:
            aggregation: Expression = yield self.aggregation()
            return aggregation
        call: Expression = yield self.call()
        return call

    def aggregation(self) -> Step[Expression]:
        cursor = self.cursor
        token = cursor.take()
        operator = token.word
        if operator in EXPERIMENTAL_AGGREGATIONS and not self.features.experimental_functions:
            cursor.fail(f"{operator}() is experimental and must be enabled with experimental_functions", token.span)
        grouping = self.grouping()
        args: list[Expression] = yield self.arguments("aggregation")
        if grouping is None:
            grouping = self.grouping()
        span = cursor.span_from(token.span)
        wanted = 1 if AGGREGATIONS[operator] is None else 2
        if not args:
            cursor.fail("no arguments for aggregate expression provided", span)
        if len(args) != wanted:
            problem = f"wrong number of arguments for aggregate expression provided, expected {wanted}, got {len(args)}"
            cursor.fail(problem, span)
        without, names = grouping or (False, ())
        parameter = args[0] if wanted == 2 else None
        node = Aggregation(operator, args[-1], parameter, names, without, span)
        self.check(check.check_aggregation, node)
        return self.made(node)

    def grouping(self) -> tuple[bool, tuple[str, ...]] | None:
        """(without, labels) of `by` or `without`. None when the query has neither."""
        word = self.cursor.token.word
        if word not in ("by", "without"):
            return None
        self.cursor.take()
        return word == "without", labels(self.cursor, "grouping opts")

    def call(self) -> Step[Expression]:
        cursor = self.cursor
        token = cursor.take()
        function = FUNCTIONS.get(token.text)
        if function is None:
            close = get_close_matches(token.text, [*FUNCTIONS, *AGGREGATIONS], 1)
            hint = f'; did you mean "{close[0]}"?' if close else ""
            cursor.fail(f'unknown function with name "{token.text}"{hint}', token.span)
        if function.experimental and not self.features.experimental_functions:
            cursor.fail(f'function "{token.text}" is not enabled', token.span)
        args: list[Expression] = yield self.arguments("function call", only_labels_last=token.text == "info")
        node = Call(token.text, tuple(args), cursor.span_from(token.span))
        self.check(check.check_call, node)
        return self.made(node)

    def arguments(self, where: str, *, only_labels_last: bool = False) -> Step[list[Expression]]:
        """only_labels_last: the second argument is a selector that need not name a series."""
        cursor = self.cursor
        cursor.expect("(", where)
        args: list[Expression] = []
        while not cursor.skip(")"):
            if only_labels_last and args and cursor.token.symbol == "{":
                args.append(self.postfix(self.made(VectorSelector(*selector(cursor))), names_series=False))
            else:
                args.append((yield self.expression(1)))
            if not cursor.skip(","):
                if not cursor.skip(")"):
                    cursor.fail_unexpected(where, '"," or ")"')
                break
            if cursor.token.symbol == ")":
                cursor.fail("trailing commas not allowed in function call args")
        return args

    def postfix(self, node: Expression, *, names_series: bool = True) -> Expression:
        """Parse ranges and modifiers behind an expression. They bind tighter than any operator.

        names_series: whether a selector must exclude some series.

        """
        cursor = self.cursor
        while True:
            token = cursor.token
            if token.symbol == "[":
                node = self.ranged(node)
            elif token.symbol == "@":
                node = self.timed(node)
            elif token.word == "offset":
                node = self.shifted(node)
            elif token.word in (Extension.ANCHORED.value, Extension.SMOOTHED.value):
                node = self.extended(node)
            else:
                if names_series and isinstance(node, VectorSelector):
                    self.check(check.check_selector, node)
                return node

    def ranged(self, node: Expression) -> Expression:
        cursor, features = self.cursor, self.features
        cursor.take()
        length = positive_duration(cursor, features, "subquery or range")
        if cursor.skip(":"):
            step = None if cursor.token.symbol == "]" else positive_duration(cursor, features, "subquery selector")
            cursor.expect("]", "subquery selector")
            subquery = Subquery(node, length, step, cursor.span_from(node.span))
            if isinstance(node, VectorSelector):
                self.check(check.check_selector, node)
            self.check(check.check_subquery, subquery)
            return self.made(subquery)
        cursor.expect("]", "subquery or range")
        if not isinstance(node, VectorSelector):
            cursor.fail("ranges only allowed for vector selectors", node.span)
        if node.offset is not None:
            cursor.fail("no offset modifiers allowed before range", node.span)
        if node.at is not None:
            cursor.fail("no @ modifiers allowed before range", node.span)
        self.check(check.check_selector, node)
        return self.made(MatrixSelector(node, length, cursor.span_from(node.span)))

    def shifted(self, node: Expression) -> Expression:
        cursor = self.cursor
        cursor.take()
        offset = offset_duration(cursor, self.features)
        target = self.modified(node, "offset")
        if target.offset is not None:
            cursor.fail("offset may not be set multiple times", node.span)
        return self.rebuilt(node, offset=offset)

    def timed(self, node: Expression) -> Expression:
        cursor = self.cursor
        cursor.take()
        at = self.timestamp()
        if self.modified(node, "@").at is not None:
            cursor.fail("@ <timestamp> may not be set multiple times", node.span)
        return self.rebuilt(node, at=at)

    def extended(self, node: Expression) -> Expression:
        cursor = self.cursor
        token = cursor.take()
        extension = Extension(token.word)
        if not self.features.extended_range_selectors:
            cursor.fail(f"{token.word} modifier is experimental and not enabled", token.span)
        target = node.selector if isinstance(node, MatrixSelector) else node
        if not isinstance(target, VectorSelector):
            cursor.fail(f"{token.word} modifier not implemented for this expression", node.span)
        if target.extension not in (Extension.NONE, extension):
            cursor.fail("anchored and smoothed modifiers cannot be used together", token.span)
        return self.rebuilt(node, extension=extension)

    def modified(self, node: Expression, modifier: str) -> VectorSelector | Subquery:
        """The node that a modifier changes."""
        target = node.selector if isinstance(node, MatrixSelector) else node
        if not isinstance(target, VectorSelector | Subquery):
            wanted = "an instant vector selector or range vector selector or a subquery"
            self.cursor.fail(f"{modifier} modifier must be preceded by {wanted}", node.span)
        return target

    def rebuilt(self, node: Expression, **changes: object) -> Expression:
        """A selector or subquery with a modifier, its span with the modifier's text."""
        span = self.cursor.span_from(node.span)
        if isinstance(node, MatrixSelector):
            return self.made(replace(node, selector=replace(node.selector, **changes), span=span))  # type: ignore[arg-type]
        assert isinstance(node, VectorSelector | Subquery)
        return self.made(replace(node, **changes, span=span))  # type: ignore[arg-type]

    def timestamp(self) -> int | Edge:
        """The time behind `@`: start(), end(), or seconds."""
        cursor = self.cursor
        token = cursor.token
        if token.word in ("start", "end"):
            cursor.take()
            cursor.expect("(", "@")
            cursor.expect(")", "@")
            return Edge(token.word)
        seconds = self.signed_number("@")
        if not math.isfinite(seconds) or abs(seconds) * 1000 > _TIME_MS_MAX:
            shown = shown_g(seconds) if not math.isfinite(seconds) else f"{seconds:f}"
            cursor.fail(f"timestamp out of bounds for @ modifier: {shown}", token.span)
        return math.trunc(seconds * 1000 + math.copysign(0.5, seconds))

    def signed_number(self, where: str) -> float:
        cursor = self.cursor
        sign = -1.0 if cursor.token.symbol == "-" else 1.0
        if cursor.token.is_sign:
            cursor.take()
        if cursor.token.word in _NUMBERS:
            return sign * _NUMBERS[cursor.take().word]
        if cursor.token.kind not in (TokenKind.NUMBER, TokenKind.DURATION):
            cursor.fail_unexpected(where, "number")
        return sign * number_token(cursor)[0]

    def check(self, check: Callable[[Cursor, Checked], None], node: Checked) -> None:
        """Keep the problem of a node, if it is the first."""
        try:
            check(self.cursor, node)
        except QueryError as problem:
            self.problem = self.problem or problem

    def made(self, node: Expression) -> Expression:
        """The node, once the number of nodes is within the bound."""
        self.parts += 1
        if self.parts > PARTS_MAX:
            self.cursor.fail(f"query has more than {PARTS_MAX} parts", node.span)
        return node

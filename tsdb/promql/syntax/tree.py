"""Tree of a query, and walks of it without Python's stack. Nodes never change once they are made.

Times are milliseconds. A node's span covers its text, modifiers included.
"""

from __future__ import annotations

import enum
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from tsdb.model.selector import Matcher
from tsdb.selector.tokens import TextSpan

T = TypeVar("T")
Step: TypeAlias = Generator["Step[Any]", Any, T]


class ValueType(enum.Enum):
    """Type of an expression. The values are those of Prometheus's messages."""

    SCALAR = "scalar"
    VECTOR = "instant vector"
    MATRIX = "range vector"
    STRING = "string"


class Edge(enum.Enum):
    """The start or the end of the query's range, for `@`."""

    START = "start"
    END = "end"


# Durations. Most are numbers, but an expression may use the step and the range of the query.


@dataclass(frozen=True, slots=True)
class DurationNumber:
    """seconds: value of a number or a duration. is_duration: whether it is written with a unit."""

    seconds: float
    is_duration: bool
    span: TextSpan


@dataclass(frozen=True, slots=True)
class DurationCall:
    """A call of `step()`, `range()`, `min_of(a, b)` or `max_of(a, b)`."""

    name: str
    args: tuple[Duration, ...]
    span: TextSpan


@dataclass(frozen=True, slots=True)
class DurationUnary:
    """A sign before a duration."""

    operator: str
    operand: Duration
    span: TextSpan


@dataclass(frozen=True, slots=True)
class DurationBinary:
    """operator: one of + - * / % ^."""

    operator: str
    left: Duration
    right: Duration
    span: TextSpan


@dataclass(frozen=True, slots=True)
class DurationParen:
    """A duration in parentheses, kept for printing."""

    inner: Duration
    span: TextSpan


Duration: TypeAlias = DurationNumber | DurationCall | DurationUnary | DurationBinary | DurationParen


# Expressions.


@dataclass(frozen=True, slots=True)
class NumberLiteral:
    """value: the number, for a duration in seconds. is_duration: whether it is written with a unit."""

    value: float
    is_duration: bool
    span: TextSpan


@dataclass(frozen=True, slots=True)
class StringLiteral:
    """value: without quotes and escapes."""

    value: str
    span: TextSpan


class Extension(enum.Enum):
    """Samples around a range that a selector adds."""

    NONE = ""
    ANCHORED = "anchored"
    SMOOTHED = "smoothed"


@dataclass(frozen=True, slots=True)
class VectorSelector:
    """name: name of the metric if it stands before the braces, otherwise empty. matchers: all matchers, beginning with
    that of such a name.

    at: milliseconds or an edge of the query's range; None: the time of evaluation.

    """

    name: str
    matchers: tuple[Matcher, ...]
    span: TextSpan
    offset: Duration | None = None
    at: int | Edge | None = None
    extension: Extension = Extension.NONE


@dataclass(frozen=True, slots=True)
class MatrixSelector:
    """Samples of a selector in (t - range, t]. The selector carries offset, `@` and extension."""

    selector: VectorSelector
    range: Duration
    span: TextSpan


@dataclass(frozen=True, slots=True)
class Subquery:
    """An expression at each multiple of the step in (t - range, t]. step: None means the default."""

    expression: Expression
    range: Duration
    step: Duration | None
    span: TextSpan
    offset: Duration | None = None
    at: int | Edge | None = None


@dataclass(frozen=True, slots=True)
class Paren:
    """An expression in parentheses."""

    inner: Expression
    span: TextSpan


@dataclass(frozen=True, slots=True)
class Unary:
    """operator: + or -."""

    operator: str
    operand: Expression
    span: TextSpan


class MatchCardinality(enum.Enum):
    """How many series of each side share the labels that match."""

    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"


@dataclass(frozen=True, slots=True)
class Matching:
    """Matches series of two sides. on: whether only `labels` count; otherwise all labels but `labels`.

    include: labels that a many-side result takes from the one side. fill_left, fill_right: the value of a missing
    series of that side.

    """

    cardinality: MatchCardinality = MatchCardinality.ONE_TO_ONE
    on: bool = False
    labels: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None

    @property
    def fills(self) -> bool:
        """Whether a side gets values for missing series."""
        return self.fill_left is not None or self.fill_right is not None


@dataclass(frozen=True, slots=True)
class Binary:
    """returns_bool: whether a comparison gives 0 or 1. operator_span: span of the operator and its modifiers. type:
    type of the value."""

    operator: str
    left: Expression
    right: Expression
    matching: Matching
    returns_bool: bool
    type: ValueType
    operator_span: TextSpan
    span: TextSpan


@dataclass(frozen=True, slots=True)
class Aggregation:
    """parameter: parameter of functions such as topk. without: group by all labels except `labels`."""

    operator: str
    operand: Expression
    parameter: Expression | None
    labels: tuple[str, ...]
    without: bool
    span: TextSpan


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function of `syntax.functions`."""

    name: str
    args: tuple[Expression, ...]
    span: TextSpan


Expression: TypeAlias = (
    NumberLiteral
    | StringLiteral
    | VectorSelector
    | MatrixSelector
    | Subquery
    | Paren
    | Unary
    | Binary
    | Aggregation
    | Call
)

COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
SET_OPERATORS = frozenset({"and", "or", "unless"})


def children(node: Expression) -> tuple[Expression, ...]:
    """The expressions directly below a node, in the order of the text. The selector of a matrix selector is its
    child."""
    match node:
        case Paren():
            return (node.inner,)
        case Unary():
            return (node.operand,)
        case Binary():
            return (node.left, node.right)
        case Aggregation():
            return (node.operand,) if node.parameter is None else (node.parameter, node.operand)
        case Call():
            return node.args
        case Subquery():
            return (node.expression,)
        case MatrixSelector():
            return (node.selector,)
        case _:
            return ()


def post_order(root: Expression) -> list[Expression]:
    """All nodes, each after its children. The root is the last one."""
    found, pending = [], [root]
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(children(node))
    return found[::-1]


def result_of(step: Step[T]) -> T:
    """Run a step of a recursion and all steps below it, so that an error can name the bound on nesting.

    A step is a generator. It yields a further step to get its result: `right = yield self.expression(1)`. The first
    exception ends all of them.
    """
    waiting: list[Step[Any]] = []
    current: Step[Any] = step
    value: Any = None
    while True:
        try:
            below = current.send(value)
        except StopIteration as end:
            value = end.value
            if not waiting:
                return cast(T, value)
            current = waiting.pop()
        else:
            waiting.append(current)
            current, value = below, None


def without_parens(node: Expression) -> Expression:
    """The expression inside all parentheses around it."""
    while isinstance(node, Paren):
        node = node.inner
    return node

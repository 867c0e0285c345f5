"""Checks a node against the types of its parts. Each check raises QueryError in the words of Prometheus."""

from __future__ import annotations

from tsdb.promql.syntax.functions import AGGREGATIONS, FUNCTIONS
from tsdb.promql.syntax.tree import (
    COMPARISONS,
    SET_OPERATORS,
    Aggregation,
    Binary,
    Call,
    Expression,
    MatchCardinality,
    MatrixSelector,
    NumberLiteral,
    Paren,
    StringLiteral,
    Subquery,
    Unary,
    ValueType,
    VectorSelector,
)
from tsdb.selector.selectors import NO_SERIES_NAMED, matches_empty
from tsdb.selector.tokens import Cursor

_NUMBERS = (ValueType.SCALAR, ValueType.VECTOR)


def type_of(node: Expression) -> ValueType:
    """Type of an expression whose parts are checked."""
    while isinstance(node, Paren | Unary):
        node = node.inner if isinstance(node, Paren) else node.operand
    match node:
        case NumberLiteral():
            return ValueType.SCALAR
        case StringLiteral():
            return ValueType.STRING
        case MatrixSelector() | Subquery():
            return ValueType.MATRIX
        case Call():
            return FUNCTIONS[node.name].result
        case Binary():
            return node.type
        case _:
            return ValueType.VECTOR


def check_selector(cursor: Cursor, node: VectorSelector) -> None:
    """At least one matcher refuses a series without its label."""
    if not node.name and all(map(matches_empty, node.matchers)):
        cursor.fail(NO_SERIES_NAMED, node.span)


def check_unary(cursor: Cursor, node: Unary) -> None:
    """A sign stands before numbers and vectors."""
    kind = type_of(node.operand)
    if kind not in _NUMBERS:
        problem = f'unary expression only allowed on expressions of type scalar or instant vector, got "{kind.value}"'
        cursor.fail(problem, node.span)


def check_subquery(cursor: Cursor, node: Subquery) -> None:
    """A subquery needs an instant vector."""
    kind = type_of(node.expression)
    if kind is not ValueType.VECTOR:
        got = "matrix" if kind is ValueType.MATRIX else kind.value
        cursor.fail(f"subquery is only allowed on instant vector, got {got} instead", node.span)


def check_binary(cursor: Cursor, node: Binary) -> None:
    """Types of both sides, and modifiers that fit the operator."""
    left, right, matching, operator = type_of(node.left), type_of(node.right), node.matching, node.operator
    if node.returns_bool and operator not in COMPARISONS:
        cursor.fail("bool modifier can only be used on comparison operators", node.operator_span)
    scalars = left is right is ValueType.SCALAR
    if operator in COMPARISONS and scalars and not node.returns_bool:
        cursor.fail("comparisons between scalars must use BOOL modifier", node.operator_span)
    if matching.on and (both := set(matching.labels) & set(matching.include)):
        cursor.fail(f'label "{min(both)}" must not occur in ON and GROUP clause at once', node.operator_span)
    for side, kind in ((node.left, left), (node.right, right)):
        if kind not in _NUMBERS:
            cursor.fail("binary expression must contain only scalar and instant vector types", side.span)
    if left is not ValueType.VECTOR or right is not ValueType.VECTOR:
        _check_without_matching(cursor, node)
    elif operator in SET_OPERATORS:
        if matching.cardinality is not MatchCardinality.MANY_TO_MANY:
            cursor.fail(f'no grouping allowed for "{operator}" operation', node.span)
        if matching.fills:
            cursor.fail("filling in missing series not allowed for set operators", node.span)


def _check_without_matching(cursor: Cursor, node: Binary) -> None:
    matching = node.matching
    if matching.labels:
        cursor.fail("vector matching only allowed between instant vectors", node.span)
    if matching.fills:
        cursor.fail("filling in missing series only allowed between instant vectors", node.span)
    if node.operator in SET_OPERATORS:
        cursor.fail(f'set operator "{node.operator}" not allowed in binary scalar expression', node.span)


def check_aggregation(cursor: Cursor, node: Aggregation) -> None:
    """Check the types of operand and parameter."""
    kind = type_of(node.operand)
    if kind is not ValueType.VECTOR:
        cursor.fail(f"expected type instant vector in aggregation expression, got {kind.value}", node.operand.span)
    wanted = AGGREGATIONS[node.operator]
    if node.parameter is not None and wanted is not None and (got := type_of(node.parameter)) is not wanted:
        cursor.fail(f"expected type {wanted.value} in aggregation parameter, got {got.value}", node.parameter.span)


def check_call(cursor: Cursor, node: Call) -> None:
    """Check the number and the types of the arguments."""
    function, count = FUNCTIONS[node.name], len(node.args)
    if function.args_min == function.args_max != count:
        _fail_count(cursor, node, f"expected {function.args_min} argument(s)")
    if count < function.args_min:
        _fail_count(cursor, node, f"expected at least {function.args_min} argument(s)")
    if function.args_max is not None and count > function.args_max:
        _fail_count(cursor, node, f"expected at most {function.args_max} argument(s)")
    if node.name == "info" and count == 2:
        _check_info_labels(cursor, node.args[1])
    for index, arg in enumerate(node.args):
        wanted, got = function.type_of(index), type_of(arg)
        if wanted is not got:
            cursor.fail(f'expected type {wanted.value} in call to function "{node.name}", got {got.value}', arg.span)


def _check_info_labels(cursor: Cursor, node: Expression) -> None:
    if not isinstance(node, VectorSelector):
        cursor.fail(
            f"expected label selectors as the second argument to info function, got {type_of(node).value}", node.span
        )
    if node.name:
        cursor.fail("expected label selectors only, got vector selector instead", node.span)


def _fail_count(cursor: Cursor, node: Call, expected: str) -> None:
    cursor.fail(f'{expected} in call to "{node.name}", got {len(node.args)}', node.span)

"""Parts of a query: its nodes, the names in it, and whether it sorts its result."""

from __future__ import annotations

from collections.abc import Iterator

from support.promql.differential.difference import Order
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import Aggregation, Binary, Call, Expression, Paren, children
from tsdb.selector.tokens import QueryError


def names_in(text: str) -> frozenset[str]:
    """The parts of a query, such as `rate`, `sum` and `atan2`. A text that does not parse has no parts."""
    try:
        root = parse(text, ALL_FEATURES)
    except QueryError:
        return frozenset()
    return frozenset(name for node in all_nodes(root) for name in _names(node))


def order_of(text: str) -> Order:
    """How far the order of the rows of an instant query counts."""
    try:
        root = parse(text, ALL_FEATURES)
    except QueryError:
        return Order.NONE
    # limitk and limit_ratio give their rows in the order of a heap, and topk its groups in that of the rows.
    if not names_in(text).isdisjoint(("limitk", "limit_ratio")):
        return Order.NONE
    while isinstance(root, Paren):
        root = root.inner
    match root:
        case Call(name="sort_by_label" | "sort_by_label_desc"):
            return Order.LABELS
        case Call(name="sort" | "sort_desc") | Aggregation(operator="topk" | "bottomk"):
            return Order.VALUES
    return Order.NONE


def all_nodes(node: Expression) -> Iterator[Expression]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from all_nodes(child)


def _names(node: Expression) -> Iterator[str]:
    match node:
        case Call():
            yield node.name
        case Aggregation():
            yield node.operator
        case Binary():
            yield node.operator

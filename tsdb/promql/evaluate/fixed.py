"""Fixed parts of a query: expressions whose value is the same at all steps."""

from __future__ import annotations

from tsdb.promql.syntax.tree import Aggregation, Call, Expression, Subquery, VectorSelector, children, post_order

# Functions of the time of a step, which no `@` below them makes the same at all steps. info() looks for info series at
# that time where its selectors look at several.
_OF_TIME = frozenset(
    [
        "days_in_month",
        "day_of_month",
        "day_of_week",
        "day_of_year",
        "hour",
        "info",
        "minute",
        "month",
        "year",
        "predict_linear",
        "time",
        "timestamp",
    ]
)


class Fixed:
    """Answers for the nodes of one query, each found once. Used by one query, on one thread."""

    def __init__(self) -> None:
        # By identity: equal nodes are compared in full. A node that is held keeps its identity.
        self._known: dict[int, tuple[Expression, bool, bool]] = {}

    def holds(self, node: Expression) -> bool:
        """Whether the value of a node is the same at all steps, and more than a number or a text."""
        is_fixed, is_more = self._of(node)
        return is_fixed and is_more

    def _of(self, node: Expression) -> tuple[bool, bool]:
        """(the same at all steps, has a selector or a call)."""
        if id(node) not in self._known:
            for one in post_order(node):
                if id(one) not in self._known:
                    self._known[id(one)] = one, *self._found(one)
        _, is_fixed, is_more = self._known[id(node)]
        return is_fixed, is_more

    def _found(self, node: Expression) -> tuple[bool, bool]:
        if isinstance(node, VectorSelector | Subquery):
            return node.at is not None, True
        # The parameter of an aggregation does not count, as in Prometheus: that of the first step then holds at all.
        parts = [self._of(part) for part in ((node.operand,) if isinstance(node, Aggregation) else children(node))]
        is_of_time = isinstance(node, Call) and node.name in _OF_TIME
        is_fixed = not is_of_time and all(fixed for fixed, _ in parts)
        return is_fixed, isinstance(node, Call) or any(more for _, more in parts)

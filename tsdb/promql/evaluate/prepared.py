"""Prepared queries: what depends on the text alone, remembered for a text that comes again.

A dashboard and an alert rule send the same text every time. Parsing took a fifth of a small query.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.functions import FUNCTIONS
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import (
    Aggregation,
    Call,
    Expression,
    Subquery,
    ValueType,
    VectorSelector,
    children,
    post_order,
)

CHARS_MAX = 1 << 18  # Characters of all remembered texts. A tree takes at most 300 bytes a character: 80 MB.
TEXT_CHARS_MAX = 1 << 13  # Longer texts are parsed each time.


class Prepared:
    """A parsed query. Several threads may use it at once."""

    def __init__(self, text: str, features: Features) -> None:
        """Raises QueryError."""
        self.text = text
        self.node = parse(text, features)
        self.type: ValueType = type_of(self.node)

    def is_fixed(self, node: Expression) -> bool:
        """Whether the value of a node of this query is the same at all steps, and more than a number or a text."""
        return id(node) in self._fixed

    @cached_property
    def _fixed(self) -> frozenset[int]:
        """The fixed nodes, by identity: equal nodes are compared in full."""
        # Pairs: whether it is the same at all steps, and whether it has a selector or a call.
        known: dict[int, tuple[bool, bool]] = {}
        for node in post_order(self.node):
            known[id(node)] = _fixed(node, known)
        return frozenset(at for at, (is_fixed, is_more) in known.items() if is_fixed and is_more)


def _fixed(node: Expression, known: dict[int, tuple[bool, bool]]) -> tuple[bool, bool]:
    if isinstance(node, VectorSelector | Subquery):
        return node.at is not None, True
    # As in Prometheus, the parameter of an aggregation does not count: its value at the first step then applies to all
    # steps.
    parts = [known[id(part)] for part in ((node.operand,) if isinstance(node, Aggregation) else children(node))]
    is_of_time = isinstance(node, Call) and FUNCTIONS[node.name].of_time
    is_fixed = not is_of_time and all(fixed for fixed, _ in parts)
    return is_fixed, isinstance(node, Call) or any(more for _, more in parts)


class PreparedQueries:
    """LRU cache of prepared queries, bounded by the characters of their texts. Thread-safe."""

    def __init__(self, chars_max: int = CHARS_MAX, text_chars_max: int = TEXT_CHARS_MAX) -> None:
        self._chars_max = chars_max
        self._text_chars_max = text_chars_max
        self._lock = threading.Lock()  # Guards all below.
        self._queries: OrderedDict[tuple[str, Features], Prepared] = OrderedDict()
        self._chars = 0

    def of(self, text: str, features: Features) -> Prepared:
        """The query of a text. Raises QueryError; errors are not remembered."""
        key = text, features
        with self._lock:
            found = self._queries.get(key)
            if found is not None:
                self._queries.move_to_end(key)
                return found
        made = Prepared(text, features)
        if len(text) <= self._text_chars_max:
            self._remember(key, made)
        return made

    def _remember(self, key: tuple[str, Features], made: Prepared) -> None:
        with self._lock:
            if key in self._queries:  # Another thread has prepared the same text.
                return
            self._queries[key] = made
            self._chars += len(made.text)
            while self._chars > self._chars_max:
                _, oldest = self._queries.popitem(last=False)
                self._chars -= len(oldest.text)

    def __len__(self) -> int:
        return len(self._queries)


PREPARED = PreparedQueries()

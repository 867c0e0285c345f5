"""Query: evaluates the text of a query to its result, and remembers the trees of texts.

A dashboard and an alert rule send the same text every time. Parsing took a fifth of a small query.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tsdb.model import defaults
from tsdb.promql.evaluate.context import Annotations, EvaluationContext, ValuesInHand
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.evaluate import evaluate, range_of
from tsdb.promql.evaluate.functions import vector_of
from tsdb.promql.evaluate.selection.matrix import range_vector
from tsdb.promql.evaluate.storage import Storage
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.evaluate.vectors.labels import Pool
from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.functions import FUNCTIONS
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import (
    Aggregation,
    Binary,
    Call,
    Expression,
    Subquery,
    ValueType,
    VectorSelector,
    children,
    post_order,
)
from tsdb.selector.tokens import QueryError

LOOKBACK_MS = 5 * 60 * 1000
SUBQUERY_STEP_MS = 60 * 1000
NO_FEATURES = Features()
CHARS_MAX = 1 << 18  # Characters of all remembered texts. A tree takes at most 300 bytes a character: 80 MB.
TEXT_CHARS_MAX = 1 << 13  # Longer texts are parsed each time.


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """lookback_ms: how old the newest sample of a step may be. subquery_step_ms: step of a subquery that has none.

    delays_name_removal: names are removed at the end of the query, as with Prometheus's flag
    `promql-delayed-name-removal`. values_max: bound of one vector over all its steps. hold: called with the bytes of
    all vectors in memory; raises when they do not fit. check: called between the parts of a query; raises to end it.

    """

    features: Features = NO_FEATURES
    lookback_ms: int = LOOKBACK_MS
    subquery_step_ms: int = SUBQUERY_STEP_MS
    delays_name_removal: bool = False
    values_max: int = defaults.QUERY_VALUES_MAX
    hold: Callable[[int], None] = lambda _: None
    check: Callable[[], None] = lambda: None


DEFAULTS = QueryOptions()


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """value: for an instant query a Block with one step in the order of the result, Samples, a Scalar or a Text; for a
    range query a Block with its series in the order of their labels, where a number is one series without labels.
    times_ms: int64 (steps,)."""

    value: Block | Samples | Scalar | Text
    times_ms: NDArray[np.int64]
    warnings: tuple[str, ...]
    infos: tuple[str, ...]

    @property
    def has_histograms(self) -> bool:
        """Whether a value is a native histogram."""
        value = self.value
        if isinstance(value, Block):
            return value.native is not None and bool(value.is_histogram.any())
        return isinstance(value, Samples) and value.native is not None and bool((value.native.of >= 0).any())

    def check_floats(self, where: str) -> None:
        """Raises EvaluationError (native_histograms) for a value that is a native histogram. where: what shows floats
        alone."""
        if self.has_histograms:
            raise EvaluationError(
                f"the result has native histograms, and {where} shows numbers alone: apply histogram_quantile(),"
                " histogram_avg(), histogram_count() or histogram_sum(), or send the query to /api/v1/query",
                reason="native_histograms",
            )


def instant_query(text: str, storage: Storage, at_ms: int, options: QueryOptions = DEFAULTS) -> EvaluationResult:
    """The value at one time.

    Raises QueryError for the text, EvaluationError for the samples, and what the storage raises.
    """
    query = _prepared.of(text, options.features)
    node = query.node
    context = _context(query, storage, (at_ms, at_ms, 0), options)
    value: Block | Samples | Scalar | Text
    with np.errstate(all="ignore"):
        if query.type is ValueType.MATRIX:
            value = range_vector(range_of(context, node)).at_end()
        else:
            found = evaluate(context, node)
            value = _ended(context, found) if isinstance(found, Block) else found
    return _result(context, value)


def range_query(
    text: str, storage: Storage, start_ms: int, end_ms: int, step_ms: int, options: QueryOptions = DEFAULTS
) -> EvaluationResult:
    """The values at start_ms, start_ms + step_ms, ... up to end_ms. step_ms > 0, end_ms >= start_ms.

    Raises the errors of instant_query, and QueryError for an expression that is neither a vector nor a scalar.
    """
    query = _prepared.of(text, options.features)
    node = query.node
    if query.type not in (ValueType.VECTOR, ValueType.SCALAR):
        problem = f'invalid expression type "{query.type.value}" for range query, must be Scalar or instant Vector'
        raise QueryError(problem, text, node.span)
    context = _context(query, storage, (start_ms, end_ms, step_ms), options)
    context.admit(1, context.steps)
    with np.errstate(all="ignore"):
        value = evaluate(context, node)
        if isinstance(value, Block):
            value = _ended(context, value)
            value = value.subset(value.labels.order())
        elif isinstance(value, Scalar):
            value = vector_of(context, value)
    return _result(context, value)


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

    def needs_totals(self, node: Expression) -> bool:
        """Whether the query needs only counts and sums of a selector's histograms. As in Prometheus, they then have no
        buckets, and the hints that a comparison of the whole histograms gives."""
        return id(node) in self._of_totals

    @cached_property
    def _of_totals(self) -> frozenset[int]:
        found: set[int] = set()
        pending: list[tuple[Expression, bool]] = [(self.node, False)]
        while pending:
            node, is_of_totals = pending.pop()
            if isinstance(node, VectorSelector) and is_of_totals:
                found.add(id(node))
            if not _needs_buckets(node):
                is_of_totals = is_of_totals or (isinstance(node, Call) and node.name in _OF_TOTALS)
                pending.extend((part, is_of_totals) for part in children(node))
        return frozenset(found)

    @cached_property
    def _fixed(self) -> frozenset[int]:
        """The fixed nodes, by identity: equal nodes are compared in full."""
        # Pairs: whether it is the same at all steps, and whether it has a selector or a call.
        known: dict[int, tuple[bool, bool]] = {}
        for node in post_order(self.node):
            known[id(node)] = _fixed(node, known)
        return frozenset(at for at, (is_fixed, is_more) in known.items() if is_fixed and is_more)


_OF_TOTALS = frozenset({"histogram_count", "histogram_sum", "histogram_avg"})
_OF_BUCKETS = frozenset(
    {"histogram_quantile", "histogram_quantiles", "histogram_fraction", "histogram_stddev", "histogram_stdvar"}
)


def _needs_buckets(node: Expression) -> bool:
    match node:
        case Subquery():
            return True
        case Binary():
            return node.operator in ("</", ">/")
        case Call():
            return node.name in _OF_BUCKETS
        case _:
            return False


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


_prepared = PreparedQueries()


def _context(
    query: Prepared, storage: Storage, steps: tuple[int, int, int], options: QueryOptions
) -> EvaluationContext:
    start_ms, end_ms, step_ms = steps
    return EvaluationContext(
        storage=storage,
        is_fixed=query.is_fixed,
        needs_totals=query.needs_totals,
        annotations=Annotations(query.text),
        pool=Pool(),
        start_ms=start_ms,
        end_ms=end_ms,
        step_ms=step_ms,
        query_start_ms=start_ms,
        query_end_ms=end_ms,
        query_step_ms=step_ms,
        lookback_ms=options.lookback_ms,
        subquery_step_ms=options.subquery_step_ms,
        delays_name_removal=options.delays_name_removal,
        start_timestamps=options.features.start_timestamps,
        values_max=options.values_max,
        in_hand=ValuesInHand(options.hold),
        check=options.check,
    )


def _ended(context: EvaluationContext, block: Block) -> Block:
    if block.native is not None:
        # Nothing is computed after the query: its memory is counted here, and its bound of time holds.
        block = replace(block, native=replace(block.native, source=block.native.histograms))
    # No name is marked where names go at once, and looking for marks goes through all series.
    return block.at_end() if context.delays_name_removal else block.merged()


def _result(context: EvaluationContext, value: Block | Samples | Scalar | Text) -> EvaluationResult:
    annotations = context.annotations
    return EvaluationResult(value, context.times_ms, annotations.warnings, annotations.infos)

"""Query: evaluates the text of a query to its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.model import defaults
from tsdb.promql.evaluate.context import Annotations, EvaluationContext, ValuesInHand
from tsdb.promql.evaluate.evaluate import evaluate, range_of
from tsdb.promql.evaluate.functions import vector_of
from tsdb.promql.evaluate.names import at_end, samples_at_end
from tsdb.promql.evaluate.prepared import PREPARED, Prepared
from tsdb.promql.evaluate.selection.matrix import range_vector
from tsdb.promql.evaluate.storage import Storage
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar, Text
from tsdb.promql.evaluate.vectors.labels import Pool
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.tree import ValueType
from tsdb.selector.tokens import QueryError

LOOKBACK_MS = 5 * 60 * 1000
SUBQUERY_STEP_MS = 60 * 1000
NO_FEATURES = Features()


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


def instant_query(text: str, storage: Storage, at_ms: int, options: QueryOptions = DEFAULTS) -> EvaluationResult:
    """The value at one time.

    Raises QueryError for the text, EvaluationError for the samples, and what the storage raises.
    """
    query = PREPARED.of(text, options.features)
    node = query.node
    context = _context(query, storage, (at_ms, at_ms, 0), options)
    value: Block | Samples | Scalar | Text
    with np.errstate(all="ignore"):
        if query.type is ValueType.MATRIX:
            value = samples_at_end(range_vector(range_of(context, node)))
        else:
            found = evaluate(context, node)
            value = at_end(found) if isinstance(found, Block) else found
    return _result(context, value)


def range_query(
    text: str, storage: Storage, start_ms: int, end_ms: int, step_ms: int, options: QueryOptions = DEFAULTS
) -> EvaluationResult:
    """The values at start_ms, start_ms + step_ms, ... up to end_ms. step_ms > 0, end_ms >= start_ms.

    Raises the errors of instant_query, and QueryError for an expression that is neither a vector nor a scalar.
    """
    query = PREPARED.of(text, options.features)
    node = query.node
    if query.type not in (ValueType.VECTOR, ValueType.SCALAR):
        problem = f'invalid expression type "{query.type.value}" for range query, must be Scalar or instant Vector'
        raise QueryError(problem, text, node.span)
    context = _context(query, storage, (start_ms, end_ms, step_ms), options)
    context.admit(1, context.steps)
    with np.errstate(all="ignore"):
        value = evaluate(context, node)
        if isinstance(value, Block):
            value = at_end(value)
            value = value.subset(value.labels.order())
        elif isinstance(value, Scalar):
            value = vector_of(context, value)
    return _result(context, value)


def _context(
    query: Prepared, storage: Storage, steps: tuple[int, int, int], options: QueryOptions
) -> EvaluationContext:
    start_ms, end_ms, step_ms = steps
    return EvaluationContext(
        storage=storage,
        query=query,
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
        values_max=options.values_max,
        in_hand=ValuesInHand(options.hold),
        check=options.check,
    )


def _result(context: EvaluationContext, value: Block | Samples | Scalar | Text) -> EvaluationResult:
    annotations = context.annotations
    return EvaluationResult(value, context.times_ms, annotations.warnings, annotations.infos)

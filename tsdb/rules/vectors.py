"""Evaluates the expression of a rule to its vector, with our PromQL over any storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query
from tsdb.promql.evaluate.storage import Storage
from tsdb.promql.evaluate.vectors.block import Block, Scalar
from tsdb.rules.groups import RuleError, VectorSample


def vector_of(result: EvaluationResult) -> list[VectorSample]:
    """The series of an instant query; a scalar is one without labels. Raises RuleError for other types."""
    value = result.value
    if isinstance(value, Scalar):
        return [VectorSample({}, float(value.values[0]))]
    if not isinstance(value, Block):
        raise RuleError("rule result is not a vector or scalar")
    labels, values = value.labels, value.values[:, 0].tolist()
    shown = [pool_row(labels.pool.texts(numbers), labels.names) for numbers in labels.numbers.tolist()]
    return [VectorSample(row, number) for row, number in zip(shown, values, strict=True)]


def pool_row(texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def vector_query(storage: Callable[[], Storage], options: QueryOptions) -> Callable[[str, int], list[VectorSample]]:
    """A function that evaluates an expression at a time. storage: opens one for each query."""
    return lambda text, at_ms: vector_of(instant_query(text, storage(), at_ms, options))

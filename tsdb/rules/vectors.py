"""Evaluates the expression of a rule to its vector, with our PromQL over any storage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tsdb.model.histograms import HistogramColumns
from tsdb.promql.evaluate.native.stored import stored_columns
from tsdb.promql.evaluate.query import EvaluationResult, QueryOptions, instant_query
from tsdb.promql.evaluate.storage import Storage
from tsdb.promql.evaluate.vectors.block import Block, Scalar
from tsdb.rules.groups import RuleError, VectorSample
from tsdb.rules.values import RuleValue


def vector_of(result: EvaluationResult, series_max: int | None = None) -> list[VectorSample]:
    """The series of an instant query; a scalar is one without labels. Raises RuleError for other types, and for more
    than series_max series."""
    value = result.value
    if isinstance(value, Scalar):
        return [VectorSample({}, float(value.values[0]))]
    if not isinstance(value, Block):
        raise RuleError("rule result is not a vector or scalar")
    if series_max is not None and len(value) > series_max:
        raise too_many_series(len(value), series_max)
    names, texts = value.labels.names, value.labels.pool.texts
    values: list[RuleValue] = value.values[:, 0].tolist()
    if value.native is not None:
        rows_of = np.flatnonzero(value.is_histogram[:, 0])
        histograms = stored_columns(value.native.histograms.take(value.native.of[rows_of, 0]))
        for place, row in enumerate(rows_of.tolist()):
            values[row] = histograms.take(np.array([place]))
    rows = zip(value.labels.numbers.tolist(), values, strict=True)
    return [VectorSample(_labels(names, texts(numbers)), number) for numbers, number in rows]


def too_many_series(count: int, series_max: int) -> RuleError:
    """The error of an expression with more series than its bound."""
    return RuleError(f"{count} series; the limit is {series_max} (rules_series_max): aggregate in the expression")


def native_histogram() -> RuleError:
    """The error of a backfill for a result with native histograms."""
    return RuleError(
        "the result has native histograms, and a backfill writes numbers alone: apply histogram_quantile(),"
        " histogram_avg(), histogram_count() or histogram_sum(), or let a ruler record it"
    )


def checked_floats(vector: Sequence[VectorSample]) -> Sequence[VectorSample]:
    """The vector. Raises RuleError for native histograms."""
    if any(isinstance(sample.value, HistogramColumns) for sample in vector):
        raise native_histogram()
    return vector


def _labels(names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def vector_query(storage: Callable[[], Storage], options: QueryOptions) -> Callable[[str, int], list[VectorSample]]:
    """A function that evaluates an expression at a time. storage: opens one for each query."""
    return lambda text, at_ms: vector_of(instant_query(text, storage(), at_ms, options))

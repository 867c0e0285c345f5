"""Functions over classic histograms: series that differ in their label `le` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.annotations import ForcedMonotonicity
from tsdb.promql.evaluate.context import Context
from tsdb.promql.evaluate.groups.histogram_kernels import FRACTION, QUANTILE, histogram_kernel
from tsdb.promql.evaluate.names import merged, without_name
from tsdb.promql.evaluate.ranges.range_functions import warn_of_quantiles
from tsdb.promql.evaluate.vectors.block import Block, Scalar, stacked
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets
from tsdb.promql.syntax.errors import Span
from tsdb.promql.syntax.numbers import shown_g
from tsdb.promql.syntax.tree import Call

BOUND = "le"


@dataclass(frozen=True, slots=True)
class Histograms:
    """Rows of histogram h: order[starts[h]:starts[h + 1]], int64, ascending in their upper bounds, float64 (rows,).

    labels: of each histogram, without `le`, with the name. values, present: (rows, steps).
    """

    labels: LabelSets
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    bounds: NDArray[np.float64]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]


def histogram_quantile(context: Context, node: Call, quantile: Scalar, block: Block) -> Block:
    """The quantile of each histogram, between bounds by straight lines."""
    warn_of_quantiles(context, quantile.values, node)
    return without_name(context, _quantile(context, _histograms(context, block, node.args[1].span), quantile, node, 1))


def histogram_quantiles(context: Context, node: Call, block: Block, label: str, quantiles: Sequence[Scalar]) -> Block:
    """Several quantiles, each in a label."""
    for index, quantile in enumerate(quantiles):
        warn_of_quantiles(context, quantile.values, node, 2 + index)
    histograms = _histograms(context, block, node.args[0].span)
    parts: list[Block] = []
    for quantile in quantiles:
        found = _quantile(context, histograms, quantile, node, 0)
        values, of_step = np.unique(quantile.values, return_inverse=True)  # NaN equals NaN here.
        for index, value in enumerate(values.tolist()):
            here = of_step.reshape(-1) == index
            number = context.pool.number(_shown_quantile(value))
            labels = found.labels.with_column(label, np.full(len(found), number, np.int32))
            parts.append(replace(found, labels=labels).with_present(found.present & here))
    return without_name(context, merged(stacked(parts)))


def histogram_fraction(context: Context, node: Call, lower: Scalar, upper: Scalar, block: Block) -> Block:
    """The share of observations between two values."""
    histograms = _histograms(context, block, node.args[2].span)
    return without_name(context, _computed(context, histograms, FRACTION, lower.values, upper.values)[0])


def _quantile(context: Context, histograms: Histograms, quantile: Scalar, node: Call, argument: int) -> Block:
    block, forced = _computed(context, histograms, QUANTILE, quantile.values, quantile.values)
    times_ms = context.times_ms
    for index in np.flatnonzero(forced[:, 0]).tolist():
        samples, low, high, difference, first, last = forced[index].tolist()
        name = histograms.labels.texts(METRIC_NAME)[index] if context.delays_name_removal else ""
        found = ForcedMonotonicity(
            low, high, difference, int(samples), int(times_ms[int(first)]), int(times_ms[int(last)])
        )
        context.annotations.inform_of_monotonicity(found, name, node.args[argument].span)
    return block


def _computed(
    context: Context, histograms: Histograms, code: int, one: NDArray[np.float64], two: NDArray[np.float64]
) -> tuple[Block, NDArray[np.float64]]:
    """The values, and for each histogram what had to be raised, float64 (histograms, 6): see `histogram_kernel`."""
    count = len(histograms.labels)
    shape = count, context.steps
    block = Block(histograms.labels, np.zeros(shape), np.zeros(shape, np.bool_), np.zeros(count, np.bool_))
    forced = np.zeros((count, 6))
    histogram_kernel(
        code,
        histograms.order,
        histograms.starts,
        histograms.bounds,
        histograms.values,
        histograms.present,
        one,
        two,
        block.values,
        block.present,
        forced,
    )
    return block.compact(), forced


def _histograms(context: Context, block: Block, span: Span) -> Histograms:
    texts = block.labels.texts(BOUND)
    names = block.labels.texts(METRIC_NAME)
    bounds = np.array([_bound(text) for text in texts], np.float64)
    good = np.array([_is_bound(text) for text in texts], np.bool_)
    for text, name in dict.fromkeys((texts[row], names[row]) for row in np.flatnonzero(~good).tolist()):
        problem = f'bucket label "le" is missing or has a malformed value of "{text}"'
        if context.delays_name_removal and name:
            problem += f' for metric name "{name}"'
        context.annotations.warn(problem, span)
    rows = np.flatnonzero(good)
    labels = block.labels.take(rows).without((BOUND,))
    groups = labels.groups()
    order = np.lexsort((bounds[rows], groups.of_row))
    return Histograms(
        labels.take(groups.first),
        order,
        groups.starts,
        bounds[rows],
        block.values[rows],
        block.present[rows],
    )


def _is_bound(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip() and "_" not in text


def _bound(text: str) -> float:
    return float(text) if _is_bound(text) else 0.0


def _shown_quantile(value: float) -> str:
    """A number as OpenMetrics has it: with a point or an exponent."""
    text = shown_g(value)
    return text if set(text) & set(".eNI") else f"{text}.0"

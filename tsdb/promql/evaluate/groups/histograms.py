"""Functions over classic histograms, series that differ in their label `le` alone, and over native ones beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.context import EvaluationContext, ForcedMonotonicity
from tsdb.promql.evaluate.groups.histogram_kernels import FRACTION, QUANTILE, histogram_kernel
from tsdb.promql.evaluate.groups.native_quantiles import native_fractions, native_quantiles
from tsdb.promql.evaluate.ranges.range_functions import warn_of_quantiles
from tsdb.promql.evaluate.vectors.block import Block, Scalar, stacked
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets, joined
from tsdb.promql.syntax.numbers import shown_g
from tsdb.promql.syntax.tree import Call
from tsdb.selector.tokens import TextSpan

BOUND = "le"
_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*\.?|\d*\.\d+)(?:\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_SPECIAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Histograms:
    """Classic histograms. Histogram h has the rows order[starts[h]:starts[h + 1]], int64, ascending by their upper
    bounds, float64 (rows,).

    labels: labels of each histogram, without `le` and with the name. values, present: (rows, steps).

    """

    labels: LabelSets
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    bounds: NDArray[np.float64]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]


def histogram_quantile(context: EvaluationContext, node: Call, quantile: Scalar, block: Block) -> Block:
    """The quantile of each histogram, by linear interpolation between bounds."""
    warn_of_quantiles(context, quantile.values, node)
    histograms, native = _split(context, block, node.args[1].span)
    found = _quantiles(context, histograms, [quantile], node.args[1].span)[0]
    return _with_native(
        context, found, native and native_quantiles(context, native, quantile.values, node.args[1].span)
    )


def histogram_quantiles(
    context: EvaluationContext, node: Call, block: Block, label: str, quantiles: Sequence[Scalar]
) -> Block:
    """Several quantiles of each histogram, each with a label that names it."""
    for index, quantile in enumerate(quantiles):
        warn_of_quantiles(context, quantile.values, node, 2 + index)
    span = node.args[0].span
    histograms, native = _split(context, block, span)
    parts: list[Block] = []
    for quantile, classic in zip(quantiles, _quantiles(context, histograms, quantiles, span), strict=True):
        of_native = native and native_quantiles(context, native, quantile.values, span)
        found = classic if of_native is None else stacked((classic, of_native))
        values, of_step = np.unique(quantile.values, return_inverse=True)  # NaN equals NaN here.
        for index, value in enumerate(values.tolist()):
            here = of_step.reshape(-1) == index
            number = context.pool.number(_shown_quantile(value))
            labels = found.labels.with_column(label, np.full(len(found), number, np.int32))
            parts.append(replace(found, labels=labels).with_present(found.present & here))
    return context.without_name(stacked(parts).merged())


def histogram_fraction(context: EvaluationContext, node: Call, lower: Scalar, upper: Scalar, block: Block) -> Block:
    """The share of observations between two values."""
    span = node.args[2].span
    histograms, native = _split(context, block, span)
    found = _computed(context, histograms, FRACTION, [lower], [upper])[0][0]
    return _with_native(context, found, native and native_fractions(context, native, lower.values, upper.values, span))


def _with_native(context: EvaluationContext, classic: Block, native: Block | None) -> Block:
    """The values of classic and of native histograms, without names."""
    both = classic if native is None else stacked((classic, native)).compact()
    return context.without_name(both)


def _split(context: EvaluationContext, block: Block, span: TextSpan) -> tuple[Histograms, Block | None]:
    """The classic histograms, and the series with native ones. At a step with both, neither counts."""
    if block.native is None:
        return _histograms(context, block, span), None
    native = block.with_present(block.is_histogram)
    classic = _histograms(context, block.floats(), span)
    keys = joined(classic.labels, native.labels).groups()
    middle = len(classic.labels)
    shape = len(keys), block.steps
    has_classic, has_native = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    histogram_of = np.repeat(np.arange(middle), np.diff(classic.starts))
    np.logical_or.at(has_classic, keys.of_row[:middle][histogram_of], classic.present[classic.order])
    np.logical_or.at(has_native, keys.of_row[middle:], native.present)
    both = has_classic & has_native
    if not both.any():
        return classic, native
    names = native.labels.texts(METRIC_NAME)
    of_native = both[keys.of_row[middle:]]
    for name in dict.fromkeys(names[row] for row in np.flatnonzero(of_native.any(axis=1)).tolist()):
        problem = "vector contains a mix of classic and native histograms"
        if context.delays_name_removal and name:
            problem += f' for metric name "{name}"'
        context.annotations.warn(problem, span)
    present = classic.present.copy()
    present[classic.order] &= ~both[keys.of_row[:middle][histogram_of]]
    return replace(classic, present=present), native.with_present(native.present & ~of_native)


def _quantiles(
    context: EvaluationContext, histograms: Histograms, quantiles: Sequence[Scalar], span: TextSpan
) -> list[Block]:
    """The values of each quantile. span: position of the buckets in the query."""
    blocks, forced = _computed(context, histograms, QUANTILE, quantiles, quantiles)
    times_ms = context.times_ms
    for number, index in np.argwhere(forced[:, :, 0]).tolist():
        samples, low, high, difference, first, last = forced[number, index].tolist()
        name = histograms.labels.texts(METRIC_NAME)[index] if context.delays_name_removal else ""
        found = ForcedMonotonicity(
            low, high, difference, int(samples), int(times_ms[int(first)]), int(times_ms[int(last)])
        )
        context.annotations.inform_of_monotonicity(found, name, span)
    return blocks


def _computed(
    context: EvaluationContext, histograms: Histograms, code: int, one: Sequence[Scalar], two: Sequence[Scalar]
) -> tuple[list[Block], NDArray[np.float64]]:
    """The values for each of the parameters, and what had to be raised for it, float64 (parameters, histograms, 6):
    see `histogram_kernel`."""
    count = len(histograms.labels)
    context.admit(count * len(one), context.steps)
    shape = count, context.steps
    values, present = np.zeros((len(one), *shape)), np.zeros(shape, np.bool_)
    forced = np.zeros((len(one), count, 6))
    histogram_kernel(
        code,
        histograms.order,
        histograms.starts,
        histograms.bounds,
        histograms.values,
        histograms.present,
        np.array([scalar.values for scalar in one]),
        np.array([scalar.values for scalar in two]),
        values,
        present,
        forced,
    )
    loses_name = np.zeros(count, np.bool_)
    return [Block(histograms.labels, each, present, loses_name).compact() for each in values], forced


def _histograms(context: EvaluationContext, block: Block, span: TextSpan) -> Histograms:
    texts = block.labels.texts(BOUND)
    names = block.labels.texts(METRIC_NAME)
    known = {text: _bound(text) for text in dict.fromkeys(texts)}
    bounds = np.array([known[text] for text in texts], np.float64)  # NaN instead of None.
    good = np.array([known[text] is not None for text in texts], np.bool_)
    for text, name in dict.fromkeys((texts[row], names[row]) for row in np.flatnonzero(~good).tolist()):
        problem = f'bucket label "le" is missing or has a malformed value of "{text}"'
        if context.delays_name_removal and name:
            problem += f' for metric name "{name}"'
        context.annotations.warn(problem, span)
    rows = np.flatnonzero(good)
    labels = block.labels.subset(rows).without((BOUND,))
    groups = labels.groups()
    order = np.lexsort((bounds[rows], groups.of_row))
    return Histograms(
        labels.first_of(groups),
        order,
        groups.starts,
        bounds[rows],
        block.values[rows],
        block.present[rows],
    )


def _bound(text: str) -> float | None:
    """The number of a bound, as Go parses it. None for another text, and for a number beyond the largest one."""
    if _NUMBER.fullmatch(text):
        value = float(text)
        return None if math.isinf(value) else value
    if _SPECIAL.fullmatch(text):
        return float(text)
    try:
        return float.fromhex(text) if _HEXADECIMAL.fullmatch(text) else None
    except OverflowError:
        return None


def _shown_quantile(value: float) -> str:
    """A number as OpenMetrics has it: with a point or an exponent."""
    text = shown_g(value)
    return text if set(text) & set(".eNI") else f"{text}.0"

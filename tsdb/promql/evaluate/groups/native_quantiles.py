"""Quantiles and fractions of native histograms, and what observations of NaN do to them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.native.measure_kernels import NAN_RESULT, NAN_SKEW
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME
from tsdb.selector.tokens import TextSpan

_OF_QUANTILE = {
    NAN_RESULT: "input to histogram_quantile has NaN observations, result is NaN",
    NAN_SKEW: "input to histogram_quantile has NaN observations, result is skewed higher",
}
_OF_FRACTION = {
    NAN_SKEW: "input to histogram_fraction has NaN observations, which are excluded from all fractions",
}


def native_quantiles(context: EvaluationContext, block: Block, quantiles: NDArray[np.float64], span: TextSpan) -> Block:
    """The quantile of each histogram of a block without floats. quantiles: float64 (steps,)."""
    assert block.native is not None, "the block has histograms alone"
    rows, steps = np.nonzero(block.present)
    taken = block.native.histograms.take(block.native.of[rows, steps])
    found = taken.quantiles(quantiles[steps])
    return _measured(context, block, (rows, steps), found, span, _OF_QUANTILE)


def native_fractions(
    context: EvaluationContext, block: Block, lower: NDArray[np.float64], upper: NDArray[np.float64], span: TextSpan
) -> Block:
    """The share of observations between two values, of each histogram of a block without floats."""
    assert block.native is not None, "the block has histograms alone"
    rows, steps = np.nonzero(block.present)
    taken = block.native.histograms.take(block.native.of[rows, steps])
    found = taken.fractions(lower[steps], upper[steps])
    return _measured(context, block, (rows, steps), found, span, _OF_FRACTION)


def _measured(
    context: EvaluationContext,
    block: Block,
    cells: tuple[NDArray[np.int64], NDArray[np.int64]],
    found: tuple[NDArray[np.float64], NDArray[np.uint8]],
    span: TextSpan,
    problems: dict[int, str],
) -> Block:
    values = np.zeros(block.values.shape)
    values[cells] = found[0]
    for flag, problem in problems.items():
        rows = np.unique(cells[0][found[1] == flag])
        if len(rows):
            names = block.labels.texts(METRIC_NAME) if context.delays_name_removal else [""] * len(block)
            for name in dict.fromkeys(names[row] for row in rows.tolist()):
                context.annotations.inform(problem + (f' for metric name "{name}"' if name else ""), span)
    return block.with_values(values)

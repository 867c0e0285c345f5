"""Functions over the samples of ranges run one kernel; each has a code, and some have checks and annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.ops.cores import over_parts
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.ranges import range_kernels as codes
from tsdb.promql.evaluate.ranges.histogram_ranges import over_histograms, span_of, warn_of_overlaps
from tsdb.promql.evaluate.ranges.range_kernels import range_kernel
from tsdb.promql.evaluate.ranges.start_times import NO_RESETS, NO_STARTS, start_resets
from tsdb.promql.evaluate.selection.select import Ranges
from tsdb.promql.evaluate.vectors.block import Block, Samples, Scalar
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME
from tsdb.promql.syntax.tree import Call, Extension

# A query that is over its time ends after a piece, which takes at most a second.
VISITS_A_PIECE = 50_000_000
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")
_EXTENSIONS = {
    Extension.NONE: codes.PLAIN,
    Extension.ANCHORED: codes.ANCHORED,
    Extension.SMOOTHED: codes.SMOOTHED,
}

Finish = Callable[[EvaluationContext, Call, Block], Block]
Parameters = Sequence[NDArray[np.float64]]


def _nameless(context: EvaluationContext, _: Call, block: Block) -> Block:
    return context.without_name(block)


def named(_context: EvaluationContext, _: Call, block: Block) -> Block:
    """The finish of functions whose result is a sample of the series."""
    return block.merged()


@dataclass(frozen=True, slots=True)
class OverRange:
    """A function over the samples of a range. code: the code of its kernel. extensions: ranges of which kinds it takes
    beside plain ones. check: raises for parameters without a meaning. annotate: adds warnings and infos. finish: the
    result from the values of all series.
    """

    code: int
    extensions: frozenset[Extension] = frozenset()
    check: Callable[[Parameters], None] | None = None
    annotate: Callable[[EvaluationContext, Call, Block, Parameters], None] | None = None
    finish: Finish = _nameless


def over_range(
    context: EvaluationContext, node: Call, function: OverRange, ranges: Ranges, parameters: Sequence[Scalar]
) -> Block:
    """The value of each range. parameters: the other arguments, in their order."""
    samples = ranges.samples
    context.admit(len(samples.labels), context.steps)
    one, two = [*(parameter.values for parameter in parameters), np.zeros(context.steps), np.zeros(context.steps)][:2]
    if function.check is not None and len(samples.values):
        function.check((one, two))

    def compute(samples: Samples) -> Block:
        return _computed(context, function.code, ranges, samples, (one, two))

    if samples.start_ms is not None:
        warn_of_overlaps(context, node, function.code, ranges)
    if samples.native is None:
        block = compute(samples)
    else:
        block = over_histograms(context, node, function.code, ranges, compute)
    block = block.compact()
    if function.annotate is not None:
        function.annotate(context, node, block.floats(), (one, two))
    return function.finish(context, node, block)


def _computed(context: EvaluationContext, code: int, ranges: Ranges, samples: Samples, parameters: Parameters) -> Block:
    """The value of each range of these samples, which count as floats. Series without a value stay."""
    one, two = parameters
    shape = len(samples.labels), context.steps
    block = Block(samples.labels, np.empty(shape), np.empty(shape, np.bool_), samples.loses_name)
    times_ms, extension = context.times_ms, _EXTENSIONS[ranges.extension]
    begins, start_ms = NO_RESETS, NO_STARTS
    if samples.start_ms is not None and code in codes.WITH_STARTS:
        begins, start_ms = start_resets(samples), samples.start_ms

    def work(steps: slice, values: NDArray[np.float64], present: NDArray[np.bool_]) -> Callable[[slice], None]:
        def of_rows(rows: slice) -> None:
            range_kernel(
                code,
                samples.starts[rows.start : rows.stop + 1],
                samples.ts_ms,
                samples.values,
                begins,
                start_ms,
                ranges.at_ms[steps],
                times_ms[steps],
                ranges.range_ms,
                ranges.before_ms,
                ranges.after_ms,
                extension,
                one[steps],
                two[steps],
                values[rows],
                present[rows],
            )

        return of_rows

    size = samples.values.nbytes + block.values.nbytes
    pieces = -(-visits(len(samples.values), context, ranges.range_ms) // VISITS_A_PIECE)
    if pieces <= 1:
        over_parts(work(slice(None), block.values, block.present), shape[0], size)
    else:
        for steps in _pieces(context.steps, pieces):
            context.check()
            part = shape[0], steps.stop - steps.start
            values, present = np.empty(part), np.empty(part, np.bool_)
            over_parts(work(steps, values, present), shape[0], size)
            block.values[:, steps], block.present[:, steps] = values, present
    return block


def visits(samples: int, context: EvaluationContext, range_ms: int) -> int:
    """About how often ranges of this length, one at each step, visit these samples in all."""
    overlap = range_ms // context.step_ms + 1 if context.step_ms else 1
    return samples * min(context.steps, overlap)


def _pieces(steps: int, count: int) -> Iterator[slice]:
    ends = [steps * piece // min(count, steps) for piece in range(min(count, steps) + 1)]
    return (slice(first, end) for first, end in pairwise(ends))


def inform_of_gauges(context: EvaluationContext, node: Call, block: Block, _: Parameters) -> None:
    """Inform of metrics whose name is not that of a counter."""
    span = span_of(node)
    labels = block.labels
    for name in labels.pool.texts(dict.fromkeys(labels.column(METRIC_NAME).tolist())):
        if name and not name.endswith(_COUNTER_SUFFIXES):
            problem = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:"
            context.annotations.inform(f'{problem} "{name}"', span)


def warn_of_own_quantile(context: EvaluationContext, node: Call, block: Block, parameters: Parameters) -> None:
    """Warn of the first parameter, at steps with a value."""
    warn_of_quantiles(context, parameters[0][block.present.any(axis=0)], node)


def warn_of_quantiles(
    context: EvaluationContext, quantiles: NDArray[np.float64], node: Call, argument: int = 0
) -> None:
    """Warn of quantiles outside of [0, 1]. argument: the argument with these samples."""
    for value in quantiles[~((quantiles >= 0) & (quantiles <= 1))].tolist():
        context.annotations.warn_of_quantile(value, node.args[argument].span)


def check_factors(parameters: Parameters) -> None:
    """Raises EvaluationError for a factor of smoothing or of its trend outside of (0, 1)."""
    for name, short, values in zip(("smoothing", "trend"), ("sf", "tf"), parameters, strict=True):
        bad = values[(values <= 0) | (values >= 1)]
        if len(bad):
            raise EvaluationError(f"invalid {name} factor. Expected: 0 < {short} < 1, got: {bad[0]:f}")

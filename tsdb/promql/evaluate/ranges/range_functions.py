"""Functions over the samples of ranges: defines their names and their annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.ops.cores import over_parts
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.names import merged, without_name
from tsdb.promql.evaluate.ranges import range_kernels as codes
from tsdb.promql.evaluate.ranges.range_kernels import range_kernel
from tsdb.promql.evaluate.selection.select import Ranges
from tsdb.promql.evaluate.vectors.block import Block, Scalar
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME
from tsdb.promql.syntax.tree import Call, Extension, Subquery
from tsdb.selector.tokens import TextSpan

RANGE_FUNCTIONS = {
    "rate": codes.RATE,
    "increase": codes.INCREASE,
    "delta": codes.DELTA,
    "irate": codes.IRATE,
    "idelta": codes.IDELTA,
    "resets": codes.RESETS,
    "changes": codes.CHANGES,
    "deriv": codes.DERIV,
    "predict_linear": codes.PREDICT_LINEAR,
    "avg_over_time": codes.AVG,
    "sum_over_time": codes.SUM,
    "min_over_time": codes.MIN,
    "max_over_time": codes.MAX,
    "count_over_time": codes.COUNT,
    "last_over_time": codes.LAST,
    "first_over_time": codes.FIRST,
    "stddev_over_time": codes.STDDEV,
    "stdvar_over_time": codes.STDVAR,
    "present_over_time": codes.PRESENT,
    "absent_over_time": codes.PRESENT,
    "quantile_over_time": codes.QUANTILE,
    "mad_over_time": codes.MAD,
    "double_exponential_smoothing": codes.SMOOTHING,
    "ts_of_min_over_time": codes.TS_OF_MIN,
    "ts_of_max_over_time": codes.TS_OF_MAX,
    "ts_of_first_over_time": codes.TS_OF_FIRST,
    "ts_of_last_over_time": codes.TS_OF_LAST,
}
# A query that is over its time ends after a piece: a second of work at most.
VISITS_A_PIECE = 50_000_000
_KEEP_NAME = frozenset({"last_over_time", "first_over_time"})
_COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")
_EXTENSIONS = {
    Extension.NONE: codes.PLAIN,
    Extension.ANCHORED: codes.ANCHORED,
    Extension.SMOOTHED: codes.SMOOTHED,
}
_EXTENDED = {
    Extension.ANCHORED: frozenset({"changes", "delta", "increase", "rate", "resets"}),
    Extension.SMOOTHED: frozenset({"delta", "increase", "rate"}),
}


def over_range(context: EvaluationContext, node: Call, ranges: Ranges, parameters: Sequence[Scalar]) -> Block:
    """The value of each range. parameters: the other arguments, in their order."""
    if ranges.extension is not Extension.NONE and node.name not in _EXTENDED[ranges.extension]:
        names = ", ".join(sorted(_EXTENDED[ranges.extension]))
        raise EvaluationError(
            f"{ranges.extension.value} modifier can only be used with: {names} - not with {node.name}"
        )
    samples = ranges.samples
    shape = len(samples.labels), context.steps
    context.admit(*shape)
    one, two = [*(parameter.values for parameter in parameters), np.zeros(context.steps), np.zeros(context.steps)][:2]
    if node.name == "double_exponential_smoothing" and len(samples.values):
        _check_factors(one, two)
    block = Block(samples.labels, np.empty(shape), np.empty(shape, np.bool_), samples.loses_name)
    times_ms = context.times_ms

    def work(steps: slice, values: NDArray[np.float64], present: NDArray[np.bool_]) -> Callable[[slice], None]:
        def of_rows(rows: slice) -> None:
            range_kernel(
                RANGE_FUNCTIONS[node.name],
                samples.starts[rows.start : rows.stop + 1],
                samples.ts_ms,
                samples.values,
                ranges.at_ms[steps],
                times_ms[steps],
                ranges.range_ms,
                ranges.before_ms,
                ranges.after_ms,
                _EXTENSIONS[ranges.extension],
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
    block = block.compact()
    _annotate(context, node, block, one)
    if node.name == "absent_over_time":
        return block  # Labels of its series do not matter.
    return merged(block) if node.name in _KEEP_NAME else without_name(context, block)


def visits(samples: int, context: EvaluationContext, range_ms: int) -> int:
    """About how often ranges of this length, one at each step, visit these samples in all."""
    overlap = range_ms // context.step_ms + 1 if context.step_ms else 1
    return samples * min(context.steps, overlap)


def _pieces(steps: int, count: int) -> Iterator[slice]:
    ends = [steps * piece // min(count, steps) for piece in range(min(count, steps) + 1)]
    return (slice(first, end) for first, end in pairwise(ends))


def _annotate(context: EvaluationContext, node: Call, block: Block, quantile: NDArray[np.float64]) -> None:
    if node.name in ("rate", "increase"):
        # Prometheus no longer knows the position of a subquery when it evaluates the function.
        span = TextSpan(0, 0) if isinstance(node.args[0], Subquery) else node.args[0].span
        for name in dict.fromkeys(block.labels.texts(METRIC_NAME)):
            if name and not name.endswith(_COUNTER_SUFFIXES):
                problem = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:"
                context.annotations.inform(f'{problem} "{name}"', span)
    if node.name == "quantile_over_time":
        warn_of_quantiles(context, quantile[block.present.any(axis=0)], node)


def warn_of_quantiles(
    context: EvaluationContext, quantiles: NDArray[np.float64], node: Call, argument: int = 0
) -> None:
    """Warn of quantiles outside of [0, 1]. argument: that gave them."""
    for value in quantiles[~((quantiles >= 0) & (quantiles <= 1))].tolist():
        context.annotations.warn_of_quantile(value, node.args[argument].span)


def _check_factors(smoothing: NDArray[np.float64], trend: NDArray[np.float64]) -> None:
    for name, short, values in (("smoothing", "sf", smoothing), ("trend", "tf", trend)):
        bad = values[(values <= 0) | (values >= 1)]
        if len(bad):
            raise EvaluationError(f"invalid {name} factor. Expected: 0 < {short} < 1, got: {bad[0]:f}")

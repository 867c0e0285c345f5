"""The table of functions: what each one computes, and from which of its arguments.

A function that is short stands here; the bodies of others are imported from the file of their subject.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tsdb.model.selector import MatchType
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.elementwise import Values, date_part, greatest, least, rounded, sign
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.groups.histograms import histogram_fraction, histogram_quantile, histogram_quantiles
from tsdb.promql.evaluate.info import with_info
from tsdb.promql.evaluate.label_functions import Relabel, label_join, label_replace
from tsdb.promql.evaluate.native.histograms import NativeHistograms
from tsdb.promql.evaluate.ranges import range_kernels as codes
from tsdb.promql.evaluate.ranges.range_functions import (
    OverRange,
    check_factors,
    inform_of_gauges,
    named,
    warn_of_own_quantile,
)
from tsdb.promql.evaluate.selection.select import newest_with_starts, newest_with_times, shifted_times
from tsdb.promql.evaluate.vectors.block import Block, Scalar, Text
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets, label_sets, no_labels
from tsdb.promql.syntax.functions import FUNCTIONS
from tsdb.promql.syntax.tree import Call, Expression, Extension, MatrixSelector, VectorSelector, without_parens

Argument = Block | Scalar | Text
Result = Block | Scalar


@dataclass(frozen=True, slots=True)
class OfValues:
    """A function of the values of all arguments. of_selector: the function of the samples, where the argument is a
    selector.
    """

    value: Callable[[EvaluationContext, Call, Sequence[Argument]], Result]
    of_selector: Callable[[EvaluationContext, VectorSelector], Block] | None = None


@dataclass(frozen=True, slots=True)
class OfTexts:
    """A function that checks its texts before the series are evaluated."""

    relabel: Callable[[Sequence[str]], Relabel]


@dataclass(frozen=True, slots=True)
class OfFirst:
    """A function of the value of the first argument; it reads the others itself."""

    value: Callable[[EvaluationContext, Call, Block], Block]


Body = OverRange | OfValues | OfTexts | OfFirst


def check_extension(node: Call, body: OverRange, extension: Extension) -> None:
    """Raises EvaluationError for a range of a kind that the function does not take."""
    if extension is not Extension.NONE and extension not in body.extensions:
        takers = (name for name, one in BODIES.items() if isinstance(one, OverRange) and extension in one.extensions)
        raise EvaluationError(
            f"{extension.value} modifier can only be used with: {', '.join(sorted(takers))} - not with {node.name}"
        )


def vector_of(context: EvaluationContext, scalar: Scalar) -> Block:
    """A block with a number as one series without labels."""
    shape = 1, context.steps
    values = scalar.values.reshape(shape).copy()
    return Block(no_labels(context.pool, 1), values, np.ones(shape, np.bool_), np.zeros(1, np.bool_))


def absent_labels(context: EvaluationContext, node: Expression) -> LabelSets:
    """The labels that a selector fixes: those of matchers with `=`, each given once."""
    node = without_parens(node)
    if isinstance(node, MatrixSelector):
        node = node.selector
    found: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in node.matchers if isinstance(node, VectorSelector) else ():
        if matcher.name == METRIC_NAME:
            continue
        if matcher.type is MatchType.EQUAL and matcher.name not in seen:
            found[matcher.name] = matcher.value
            seen.add(matcher.name)
        else:
            found.pop(matcher.name, None)
    return label_sets(context.pool, [found])


def where_absent(context: EvaluationContext, node: Expression, block: Block) -> Block:
    """1 at each step at which no series is present."""
    present = ~np.atleast_2d(block.present.any(axis=0))
    labels = absent_labels(context, node)
    return Block(labels, np.ones(present.shape), present, np.zeros(1, np.bool_)).compact()


def _clamp(context: EvaluationContext, block: Block, low: NDArray[np.float64], high: NDArray[np.float64]) -> Block:
    values = greatest(low, least(high, block.values))
    return context.without_name(block.with_values(values).with_present(block.present & ~(high < low)))


def _clamped(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    low = high = _scalar(args[1]).values
    if node.name == "clamp":
        high = _scalar(args[2]).values
    elif node.name == "clamp_min":
        high = np.full_like(low, np.inf)
    else:
        low = np.full_like(high, -np.inf)
    return _clamp(context, _block(args[0]).floats(), low, high)


def _round(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0]).floats()
    nearest = _scalar(args[1]).values if len(args) > 1 else np.ones(context.steps)
    return context.without_name(block.with_values(rounded(block.values, nearest)))


def _to_scalar(_: EvaluationContext, __: Call, args: Sequence[Argument]) -> Scalar:
    block = _block(args[0]).floats()
    counts = block.present.sum(axis=0)
    totals = np.where(block.present, block.values, 0.0).sum(axis=0)
    return Scalar(np.where(counts == 1, totals, np.nan))


def _math(compute: Callable[[Values], Values]) -> OfValues:
    def value(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
        block = _block(args[0]).floats()
        return context.without_name(block.with_values(compute(block.values)))

    return OfValues(value)


def _date(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0]).floats() if args else vector_of(context, Scalar(context.times_ms / 1000))
    return context.without_name(block.with_values(date_part(node.name, block.values)))


def _time(context: EvaluationContext, _: Call, __: Sequence[Argument]) -> Scalar:
    return Scalar(context.times_ms / 1000)


def _timestamp(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0])
    return context.without_name(block.with_values(np.broadcast_to(context.times_ms / 1000, block.values.shape).copy()))


def _timestamp_of_samples(context: EvaluationContext, selector: VectorSelector) -> Block:
    block, times_ms = newest_with_times(context, selector, shifted_times(context, selector))
    return context.without_name(block.with_values(times_ms / 1000))


def _of_query(seconds: Callable[[EvaluationContext], float]) -> OfValues:
    return OfValues(lambda context, _, __: Scalar(np.full(context.steps, seconds(context))))


def _of_two(choose: Callable[[Values, Values], Values]) -> OfValues:
    return OfValues(lambda _, __, args: Scalar(choose(_scalar(args[0]).values, _scalar(args[1]).values)))


def _of_histograms(measure: Callable[[NativeHistograms], Values]) -> OfValues:
    """A number of each histogram. Floats have none."""

    def value(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
        block = _block(args[0])
        if block.native is None:
            return context.without_name(block.take(np.zeros(0, np.int64)))
        native = block.native
        numbers = measure(native.histograms)
        is_histogram = block.is_histogram
        values = np.zeros(block.values.shape)
        values[is_histogram] = numbers[native.of[is_histogram]]
        return context.without_name(block.with_values(values).with_present(is_histogram))

    return OfValues(value)


def _without_starts(_: EvaluationContext, __: Call, args: Sequence[Argument]) -> Block:
    """Computed values have no start timestamps."""
    return _block(args[0]).take(np.zeros(0, np.int64))


def _start_timestamp_of_samples(context: EvaluationContext, selector: VectorSelector) -> Block:
    block, starts_ms = newest_with_starts(context, selector)
    if not context.start_timestamps or selector.extension is not Extension.NONE:
        return block.take(np.zeros(0, np.int64))
    return context.without_name(block.with_values(starts_ms / 1000))


def _sorted(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0])
    if _warn_of_sort(context, node):
        return block.floats()
    block = block.floats()
    values = block.values[:, 0]
    keys = -values if node.name == "sort_desc" else values
    return block.subset(np.argsort(keys, kind="stable"))  # NaN comes last in both orders.


def _sorted_by_label(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0])
    if _warn_of_sort(context, node):
        return block
    names = [cast(Text, arg).value for arg in args[1:]]
    columns = [block.labels.texts(name) for name in names]
    rows = block.labels.order().tolist()
    place = {row: at for at, row in enumerate(rows)}

    def compare(one: int, other: int) -> int:
        for texts in columns:
            if texts[one] != texts[other]:
                return -1 if _before(texts[one], texts[other]) else 1
        return place[one] - place[other]

    rows.sort(key=functools.cmp_to_key(compare), reverse=node.name == "sort_by_label_desc")
    return block.subset(np.array(rows, np.int64))


def _warn_of_sort(context: EvaluationContext, node: Call) -> bool:
    """Whether the query has a range, which orders its series by labels."""
    if context.start_ms == context.end_ms:
        return False
    problem = "sort is ineffective for range queries since results are always ordered by labels"
    context.annotations.warn(problem, node.span)
    return True


_CHUNK = re.compile(r"\d+|\D+", re.ASCII)


def _before(one: str, other: str) -> bool:
    """Compare in natural order: numbers inside texts count as numbers."""
    left, right = _CHUNK.findall(one), _CHUNK.findall(other)
    for index, chunk in enumerate(left):
        if index >= len(right):
            return False
        against = right[index]
        if chunk == against or (chunk.isdigit() and against.isdigit() and int(chunk) == int(against)):
            if index == len(left) - 1:
                return True
            continue
        if chunk.isdigit() and against.isdigit():
            return int(chunk) < int(against)
        return bool(chunk < against)
    return True


def _block(arg: Argument) -> Block:
    assert isinstance(arg, Block), "the parser checks types"
    return arg


def _scalar(arg: Argument) -> Scalar:
    assert isinstance(arg, Scalar), "the parser checks types"
    return arg


_ANCHORED, _BOTH = frozenset({Extension.ANCHORED}), frozenset({Extension.ANCHORED, Extension.SMOOTHED})

# The body of each function; syntax.functions has the types of its arguments.
BODIES: dict[str, Body] = {
    # Functions of ranges.
    "rate": OverRange(codes.RATE, _BOTH, annotate=inform_of_gauges),
    "increase": OverRange(codes.INCREASE, _BOTH, annotate=inform_of_gauges),
    "delta": OverRange(codes.DELTA, _BOTH),
    "irate": OverRange(codes.IRATE),
    "idelta": OverRange(codes.IDELTA),
    "resets": OverRange(codes.RESETS, _ANCHORED),
    "changes": OverRange(codes.CHANGES, _ANCHORED),
    "deriv": OverRange(codes.DERIV),
    "predict_linear": OverRange(codes.PREDICT_LINEAR),
    "avg_over_time": OverRange(codes.AVG),
    "sum_over_time": OverRange(codes.SUM),
    "min_over_time": OverRange(codes.MIN),
    "max_over_time": OverRange(codes.MAX),
    "count_over_time": OverRange(codes.COUNT),
    "last_over_time": OverRange(codes.LAST, finish=named),
    "first_over_time": OverRange(codes.FIRST, finish=named),
    "stddev_over_time": OverRange(codes.STDDEV),
    "stdvar_over_time": OverRange(codes.STDVAR),
    "present_over_time": OverRange(codes.PRESENT),
    # The labels of its series do not matter.
    "absent_over_time": OverRange(codes.PRESENT, finish=lambda c, node, block: where_absent(c, node.args[0], block)),
    "quantile_over_time": OverRange(codes.QUANTILE, annotate=warn_of_own_quantile),
    "mad_over_time": OverRange(codes.MAD),
    "double_exponential_smoothing": OverRange(codes.SMOOTHING, check=check_factors),
    "ts_of_min_over_time": OverRange(codes.TS_OF_MIN),
    "ts_of_max_over_time": OverRange(codes.TS_OF_MAX),
    "ts_of_first_over_time": OverRange(codes.TS_OF_FIRST),
    "ts_of_last_over_time": OverRange(codes.TS_OF_LAST),
    # Functions of one value at a time.
    "abs": _math(np.abs),
    "ceil": _math(np.ceil),
    "floor": _math(np.floor),
    "exp": _math(np.exp),
    "sqrt": _math(np.sqrt),
    "sgn": _math(sign),
    "ln": _math(np.log),
    "log2": _math(np.log2),
    "log10": _math(np.log10),
    "sin": _math(np.sin),
    "cos": _math(np.cos),
    "tan": _math(np.tan),
    "asin": _math(np.arcsin),
    "acos": _math(np.arccos),
    "atan": _math(np.arctan),
    "sinh": _math(np.sinh),
    "cosh": _math(np.cosh),
    "tanh": _math(np.tanh),
    "asinh": _math(np.arcsinh),
    "acosh": _math(np.arccosh),
    "atanh": _math(np.arctanh),
    "deg": _math(lambda values: values * 180 / np.pi),
    "rad": _math(lambda values: values * np.pi / 180),
    "round": OfValues(_round),
    "clamp": OfValues(_clamped),
    "clamp_min": OfValues(_clamped),
    "clamp_max": OfValues(_clamped),
    "minute": OfValues(_date),
    "hour": OfValues(_date),
    "day_of_week": OfValues(_date),
    "day_of_month": OfValues(_date),
    "day_of_year": OfValues(_date),
    "days_in_month": OfValues(_date),
    "month": OfValues(_date),
    "year": OfValues(_date),
    # Functions of vectors and numbers.
    "absent": OfValues(lambda context, node, args: where_absent(context, node.args[0], _block(args[0]))),
    "scalar": OfValues(_to_scalar),
    "vector": OfValues(lambda context, _, args: vector_of(context, _scalar(args[0]))),
    "timestamp": OfValues(_timestamp, of_selector=_timestamp_of_samples),
    "sort": OfValues(_sorted),
    "sort_desc": OfValues(_sorted),
    "sort_by_label": OfValues(_sorted_by_label),
    "sort_by_label_desc": OfValues(_sorted_by_label),
    "label_replace": OfTexts(label_replace),
    "label_join": OfTexts(label_join),
    "info": OfFirst(with_info),
    # Functions of the query.
    "time": OfValues(_time),
    "pi": _of_query(lambda _: np.pi),
    "start": _of_query(lambda context: context.query_start_ms / 1000),
    "end": _of_query(lambda context: context.query_end_ms / 1000),
    # Prometheus has no step when the range has no length.
    "step": _of_query(
        lambda context: 0.0 if context.query_start_ms == context.query_end_ms else context.query_step_ms / 1000
    ),
    "range": _of_query(lambda context: (context.query_end_ms - context.query_start_ms) / 1000),
    "min_of": _of_two(least),
    "max_of": _of_two(greatest),
    # Functions of classic and native histograms.
    "histogram_quantile": OfValues(
        lambda context, node, args: histogram_quantile(context, node, _scalar(args[0]), _block(args[1]))
    ),
    "histogram_quantiles": OfValues(
        lambda context, node, args: histogram_quantiles(
            context, node, _block(args[0]), cast(Text, args[1]).value, [_scalar(arg) for arg in args[2:]]
        )
    ),
    "histogram_fraction": OfValues(
        lambda context, node, args: histogram_fraction(
            context, node, _scalar(args[0]), _scalar(args[1]), _block(args[2])
        )
    ),
    # Functions of native histograms.
    "histogram_avg": _of_histograms(lambda histograms: histograms.sums / histograms.counts),
    "histogram_count": _of_histograms(lambda histograms: histograms.counts),
    "histogram_sum": _of_histograms(lambda histograms: histograms.sums),
    "histogram_stddev": _of_histograms(lambda histograms: np.sqrt(histograms.variances())),
    "histogram_stdvar": _of_histograms(lambda histograms: histograms.variances()),
    "start_timestamp": OfValues(_without_starts, of_selector=_start_timestamp_of_samples),
}
assert BODIES.keys() == FUNCTIONS.keys(), "each function has types of arguments and a body"

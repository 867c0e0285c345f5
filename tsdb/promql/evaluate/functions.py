"""Implements functions over instant vectors and scalars."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tsdb.model.selector import MatchType
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.elementwise import DATE_PARTS, MATH, Values, date_part, greatest, least, rounded
from tsdb.promql.evaluate.groups.histograms import histogram_fraction, histogram_quantile, histogram_quantiles
from tsdb.promql.evaluate.names import without_name
from tsdb.promql.evaluate.vectors.block import Block, Scalar, Text
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets, label_sets, no_labels
from tsdb.promql.syntax.tree import Call, Expression, MatrixSelector, Paren, VectorSelector

Argument = Block | Scalar | Text
Result = Block | Scalar


def called(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Result:
    """The value of a call whose arguments are not ranges."""
    if node.name in MATH:
        block = _block(args[0])
        return without_name(context, block.with_values(MATH[node.name](block.values)))
    if node.name in DATE_PARTS:
        block = _block(args[0]) if args else vector_of(context, Scalar(context.times_ms / 1000))
        return without_name(context, block.with_values(date_part(node.name, block.values)))
    return _FUNCTIONS[node.name](context, node, args)


def vector_of(context: EvaluationContext, scalar: Scalar) -> Block:
    """A block with a number as one series without labels."""
    shape = 1, context.steps
    values = scalar.values.reshape(shape).copy()
    return Block(no_labels(context.pool, 1), values, np.ones(shape, np.bool_), np.zeros(1, np.bool_))


def absent_labels(context: EvaluationContext, node: Expression) -> LabelSets:
    """The labels that a selector fixes: those of matchers with `=`, each given once."""
    while isinstance(node, Paren):
        node = node.inner
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


def where_absent(context: EvaluationContext, node: Expression, block: Block, *, loses_name: bool = False) -> Block:
    """1 at each step at which no series is present."""
    present = ~np.atleast_2d(block.present.any(axis=0))
    labels = absent_labels(context, node)
    return Block(labels, np.ones(present.shape), present, np.full(1, loses_name)).compact()


def _absent(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    return where_absent(context, node.args[0], _block(args[0]))


def _clamp(context: EvaluationContext, block: Block, low: NDArray[np.float64], high: NDArray[np.float64]) -> Block:
    values = greatest(low, least(high, block.values))
    return without_name(context, block.with_values(values).with_present(block.present & ~(high < low)))


def _clamped(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    low = high = _scalar(args[1]).values
    if node.name == "clamp":
        high = _scalar(args[2]).values
    elif node.name == "clamp_min":
        high = np.full_like(low, np.inf)
    else:
        low = np.full_like(high, -np.inf)
    return _clamp(context, _block(args[0]), low, high)


def _round(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0])
    nearest = _scalar(args[1]).values if len(args) > 1 else np.ones(context.steps)
    return without_name(context, block.with_values(rounded(block.values, nearest)))


def _to_scalar(_: EvaluationContext, __: Call, args: Sequence[Argument]) -> Scalar:
    block = _block(args[0])
    counts = block.present.sum(axis=0)
    totals = np.where(block.present, block.values, 0.0).sum(axis=0)
    return Scalar(np.where(counts == 1, totals, np.nan))


def _vector(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
    return vector_of(context, _scalar(args[0]))


def _time(context: EvaluationContext, _: Call, __: Sequence[Argument]) -> Scalar:
    return Scalar(context.times_ms / 1000)


def _timestamp(context: EvaluationContext, _: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0])
    return without_name(context, block.with_values(np.broadcast_to(context.times_ms / 1000, block.values.shape).copy()))


def _of_query(
    seconds: Callable[[EvaluationContext], float],
) -> Callable[[EvaluationContext, Call, Sequence[Argument]], Scalar]:
    return lambda context, _, __: Scalar(np.full(context.steps, seconds(context)))


def _of_two(
    choose: Callable[[Values, Values], Values],
) -> Callable[[EvaluationContext, Call, Sequence[Argument]], Scalar]:
    return lambda _, __, args: Scalar(choose(_scalar(args[0]).values, _scalar(args[1]).values))


def _none(_: EvaluationContext, __: Call, args: Sequence[Argument]) -> Block:
    """Functions of native histograms and start timestamps, which no sample here has."""
    block = next(arg for arg in args if isinstance(arg, Block))
    return block.take(np.zeros(0, np.int64))


def _sorted(context: EvaluationContext, node: Call, args: Sequence[Argument]) -> Block:
    block = _block(args[0])
    if _warn_of_sort(context, node):
        return block
    values = block.values[:, 0]
    keys = -values if node.name == "sort_desc" else values
    return block.subset(np.argsort(keys, kind="stable"))  # NaN comes last either way.


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


_FUNCTIONS: dict[str, Callable[[EvaluationContext, Call, Sequence[Argument]], Result]] = {
    "absent": _absent,
    "clamp": _clamped,
    "clamp_min": _clamped,
    "clamp_max": _clamped,
    "round": _round,
    "scalar": _to_scalar,
    "vector": _vector,
    "time": _time,
    "timestamp": _timestamp,
    "pi": _of_query(lambda _: np.pi),
    "start": _of_query(lambda context: context.query_start_ms / 1000),
    "end": _of_query(lambda context: context.query_end_ms / 1000),
    # Prometheus gives no step where the range has no length.
    "step": _of_query(
        lambda context: 0.0 if context.query_start_ms == context.query_end_ms else context.query_step_ms / 1000
    ),
    "range": _of_query(lambda context: (context.query_end_ms - context.query_start_ms) / 1000),
    "min_of": _of_two(least),
    "max_of": _of_two(greatest),
    "sort": _sorted,
    "sort_desc": _sorted,
    "sort_by_label": _sorted_by_label,
    "sort_by_label_desc": _sorted_by_label,
    "histogram_quantile": lambda context, node, args: histogram_quantile(
        context, node, _scalar(args[0]), _block(args[1])
    ),
    "histogram_quantiles": lambda context, node, args: histogram_quantiles(
        context, node, _block(args[0]), cast(Text, args[1]).value, [_scalar(arg) for arg in args[2:]]
    ),
    "histogram_fraction": lambda context, node, args: histogram_fraction(
        context, node, _scalar(args[0]), _scalar(args[1]), _block(args[2])
    ),
    **dict.fromkeys(
        (
            "histogram_avg",
            "histogram_count",
            "histogram_sum",
            "histogram_stddev",
            "histogram_stdvar",
            "start_timestamp",
        ),
        _none,
    ),
}

"""Aggregates the series of each group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from tsdb.ops.cores import over_parts
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.groups import aggregate_kernels as codes
from tsdb.promql.evaluate.groups.aggregate_kernels import aggregate_kernel, first_kernel, top_kernel
from tsdb.promql.evaluate.groups.histogram_groups import floats_of_groups, with_totals
from tsdb.promql.evaluate.native.shown import shown_histograms
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets
from tsdb.promql.syntax.numbers import shown_f, shown_g
from tsdb.promql.syntax.tree import Aggregation
from tsdb.selector.tokens import quoted

_CODES = {
    "sum": codes.SUM,
    "count": codes.COUNT,
    "min": codes.MIN,
    "max": codes.MAX,
    "group": codes.GROUP,
    "avg": codes.AVG,
    "stddev": codes.STDDEV,
    "stdvar": codes.STDVAR,
    "quantile": codes.QUANTILE,
}
_INT64_END = 2.0**63


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of rows. Group g has the rows order[starts[g]:starts[g + 1]], int64. labels: labels of each group. of_row:
    int64, the group of each row."""

    labels: LabelSets
    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    of_row: NDArray[np.int64]


def aggregated(context: EvaluationContext, node: Aggregation, block: Block, parameter: NDArray[np.float64]) -> Block:
    """parameter: float64 (steps,), of those that have one. Raises EvaluationError for one that has no meaning."""
    grouping = _grouping(node, block.labels)
    if node.operator in _CODES:
        return _reduced(context, node, floats_of_groups(context, node, block), grouping, parameter)
    if node.operator == "limit_ratio":
        return _ratio(context, node, block, parameter)
    return _chosen(context, node, block, grouping, parameter)


def check_label(name: str) -> None:
    """Raises EvaluationError for what cannot be the name of a label."""
    try:
        good = bool(name.encode())
    except UnicodeEncodeError:
        good = False
    if not good:
        raise EvaluationError(f"invalid label name {quoted(name)}")


def counted_values(context: EvaluationContext, node: Aggregation, block: Block, label: str) -> Block:
    """A series for each value of a group, with the value in a label, which was checked."""
    rows, steps = np.nonzero(block.present)
    numbers, value_of = _numbered_values(context, block, rows, steps)
    # Before the grouping, each pair of row and value is a series.
    pairs, pair_of = np.unique(rows * max(1, len(numbers)) + value_of, return_inverse=True)
    pair_rows, pair_values = np.divmod(pairs, max(1, len(numbers)))
    labels = block.labels.take(pair_rows).with_column(label, numbers[pair_values])
    names = node.labels if node.without else (*node.labels, label)
    grouping = _grouping(replace(node, labels=names), labels)
    shape = len(grouping.labels), block.steps
    context.admit(*shape)
    counts = np.zeros(shape)
    np.add.at(counts, (grouping.of_row[pair_of.reshape(-1)], steps), 1.0)
    return Block(grouping.labels, counts, counts > 0, np.zeros(shape[0], np.bool_)).merged()


def _numbered_values(
    context: EvaluationContext, block: Block, rows: NDArray[np.int64], steps: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(the number of the text of each value, the value of each cell)."""
    found, value_of = np.unique(block.values[rows, steps].view(np.int64), return_inverse=True)
    texts = [shown_f(value) for value in found.view(np.float64).tolist()]
    value_of = value_of.reshape(-1)
    if block.native is not None:
        of = block.native.of[rows, steps]
        used, places = np.unique(of[of >= 0], return_inverse=True)
        value_of[of >= 0] = len(texts) + places.reshape(-1)
        texts += shown_histograms(block.native.histograms.take(used))
    numbers, places = np.unique([context.pool.number(text) for text in texts], return_inverse=True)
    return numbers.astype(np.int32), places.reshape(-1)[value_of] if len(texts) else value_of


def _grouping(node: Aggregation, labels: LabelSets) -> Grouping:
    kept = labels.without((*node.labels, METRIC_NAME)) if node.without else labels.only(node.labels)
    groups = kept.groups()
    if len(groups) == 1:
        rows = len(labels)
        return Grouping(kept.first_of(groups), np.arange(rows), np.array([0, rows], np.int64), groups.of_row)
    order = np.argsort(groups.of_row, kind="stable")
    return Grouping(kept.first_of(groups), order, groups.starts, groups.of_row)


def _reduced(
    context: EvaluationContext, node: Aggregation, block: Block, grouping: Grouping, parameter: NDArray[np.float64]
) -> Block:
    if node.operator == "quantile":
        _warn_of_quantile(context, node, parameter)
    shape = len(grouping.labels), block.steps
    values, present = np.empty(shape), np.empty(shape, np.bool_)

    def work(steps: slice) -> None:
        aggregate_kernel(
            _CODES[node.operator],
            grouping.order,
            grouping.starts,
            steps.start,
            steps.stop,
            block.values,
            block.present,
            parameter,
            values,
            present,
        )

    over_parts(work, block.steps, block.values.nbytes)
    loses_name = np.zeros(shape[0], np.bool_)
    if context.delays_name_removal:
        np.logical_or.at(loses_name, grouping.of_row, block.loses_name)
    result = Block(grouping.labels, values, present, loses_name)
    if block.native is not None and node.operator in ("sum", "avg"):
        result = with_totals(context, node, block, grouping.of_row, result)
    return result.compact()


def _chosen(
    context: EvaluationContext, node: Aggregation, block: Block, grouping: Grouping, parameter: NDArray[np.float64]
) -> Block:
    """Evaluates topk, bottomk and limitk."""
    if not len(parameter) or not np.nanmax(parameter, initial=-np.inf) >= 1:
        if np.isnan(parameter).any() and not (parameter < 1).any():
            raise EvaluationError("Parameter value is NaN")
        return block.take(np.zeros(0, np.int64))
    if np.isnan(parameter).any():
        raise EvaluationError("Parameter value is NaN")
    if parameter.min() <= -_INT64_END:
        raise EvaluationError(f"Scalar value {shown_g(float(parameter.min()))} underflows int64")
    if parameter.max() >= _INT64_END:
        raise EvaluationError(f"Scalar value {shown_g(float(parameter.max()))} overflows int64")
    block = floats_of_groups(context, node, block)
    count = np.minimum(parameter, len(block)).astype(np.int64)
    chosen = np.zeros(block.present.shape, np.bool_)
    if node.operator == "limitk":
        first_kernel(grouping.order, grouping.starts, block.present, count, chosen)
        return block.with_present(chosen)
    sign = 1.0 if node.operator == "topk" else -1.0

    def work(steps: slice) -> None:
        rows, starts = grouping.order, grouping.starts
        top_kernel(rows, starts, steps.start, steps.stop, block.values, block.present, count, sign, chosen)

    over_parts(work, block.steps, block.values.nbytes)
    if context.start_ms != context.end_ms:
        return block.with_present(chosen)
    # Group by group, the largest value first; with sign -1.0 the smallest value first. NaN comes last.
    rows = np.flatnonzero(chosen[:, 0])
    ranked = rows[np.lexsort((-sign * block.values[rows, 0], grouping.of_row[rows]))]
    return block.subset(ranked)


def _ratio(context: EvaluationContext, node: Aggregation, block: Block, parameter: NDArray[np.float64]) -> Block:
    """limit_ratio: series whose labels hash to a share of all hashes."""
    if np.isnan(parameter).any():
        raise EvaluationError("Ratio value is NaN")
    assert node.parameter is not None
    for value, limit in ((parameter.max(initial=0.0), 1.0), (parameter.min(initial=0.0), -1.0)):
        if abs(value) > 1:
            problem = (
                f"ratio value should be between -1 and 1, got {shown_g(float(value))}, capping to {shown_g(limit)}"
            )
            context.annotations.warn(problem, node.parameter.span)
    ratio = np.clip(parameter, -1.0, 1.0)
    place = np.array([_place(block.labels.row(row)) for row in range(len(block))], np.float64)[:, np.newaxis]
    chosen = np.where(ratio >= 0, place < ratio, place >= 1.0 + ratio)
    return block.with_present(block.present & chosen & (ratio != 0))


def _place(labels: dict[str, str]) -> float:
    """The hash of labels as a fraction in [0, 1]. It is XXH64 of each text behind its length, as Prometheus hashes
    labels.
    """
    data = b"".join(_sized(text.encode(errors="surrogateescape")) for pair in labels.items() for text in pair)
    return xxhash.xxh64_intdigest(data) / float(2**64 - 1)


def _sized(text: bytes) -> bytes:
    size = len(text)
    return (bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")) + text


def _warn_of_quantile(context: EvaluationContext, node: Aggregation, parameter: NDArray[np.float64]) -> None:
    assert node.parameter is not None
    bad: list[float] = []
    if np.isnan(parameter).any():
        bad.append(np.nan)
    numbers = parameter[~np.isnan(parameter)]
    if len(numbers) and numbers.max() > 1:
        bad.append(float(numbers.max()))
    if len(numbers) and numbers.min() < 0:
        bad.append(float(numbers.min()))
    for value in bad:
        context.annotations.warn_of_quantile(value, node.parameter.span)

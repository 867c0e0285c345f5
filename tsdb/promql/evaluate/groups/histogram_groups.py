"""Aggregation of groups with histograms: sums and means of these, and which operators leave them out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.ops.cores import on_cores
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.native.histograms import (
    CombinedHistograms,
    HistogramCells,
    PendingHistograms,
    joined_combined,
    parts_of,
)
from tsdb.promql.evaluate.ranges.histogram_ranges import report_combined
from tsdb.promql.evaluate.vectors.block import Block, counted
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME
from tsdb.promql.syntax.tree import Aggregation, without_parens

PENDING_MAX = 1 << 12  # Histograms that are computed at once for a sum: some MiB, which the caches of a core hold.
PENDING_BYTES = 1024  # Rough size of a histogram.
PARTS_A_CHECK = 32
_OF_FLOATS = frozenset({"min", "max", "stddev", "stdvar", "quantile", "topk", "bottomk"})


def floats_of_groups(context: EvaluationContext, node: Aggregation, block: Block) -> Block:
    """The block for operators that work on floats alone, without its histograms. Series without floats stay."""
    if block.native is None or node.operator not in _OF_FLOATS:
        return block
    is_histogram = block.is_histogram
    if is_histogram.any():
        # Prometheus gives the place of the operand, but that of the whole aggregation for those that choose series.
        span = node.span if node.operator in ("topk", "bottomk") else without_parens(node.operand).span
        context.annotations.inform(f"ignored histogram in {node.operator} aggregation", span)
    return replace(block, present=block.present & ~is_histogram, native=None)


def with_totals(
    context: EvaluationContext, node: Aggregation, block: Block, of_row: NDArray[np.int64], result: Block
) -> Block:
    """The sums or means of floats with those of histograms. of_row: the group of each row. result: the values of groups
    whose samples all count as floats."""
    assert block.native is not None, "groups of floats have another way"
    is_histogram = block.is_histogram
    groups = len(result)
    floats = counted(block.present & ~is_histogram, of_row, groups) > 0
    histograms = counted(is_histogram, of_row, groups) > 0
    span = without_parens(node.operand).span
    if (floats & histograms).any():
        context.annotations.warn("encountered a mix of histograms and floats for aggregation", span)
    rows, steps = np.nonzero(is_histogram & ~floats[of_row])
    group = of_row[rows]
    order = np.lexsort((rows, steps, group))
    rows, steps, group = rows[order], steps[order], group[order]
    cell = group * block.steps + steps
    starts = np.concatenate((np.flatnonzero(np.diff(cell, prepend=-1)), [len(cell)])).astype(np.int64)
    members = block.native.of[rows, steps]
    sizes = np.diff(starts)
    divisors = sizes.astype(np.float64) if node.operator == "avg" else None
    found = _combined(context, block.native, starts, members, divisors)
    failed = np.flatnonzero(found.failed >= 0)
    if len(failed):
        names = block.labels.texts(METRIC_NAME)
        for row in dict.fromkeys(rows[starts[failed] + found.failed[failed]].tolist()):
            problem = "vector contains a mix of histograms with exponential and custom buckets schemas for metric name"
            context.annotations.warn(f'{problem} "{names[row]}"', span)
    report_combined(context, found, span, is_aggregation=True)
    firsts = starts[:-1]
    good = found.failed < 0
    of = np.full(result.values.shape, -1, np.int64)
    of[group[firsts][good], steps[firsts][good]] = np.flatnonzero(good)
    return replace(result, present=(floats & ~histograms) | (of >= 0), native=HistogramCells(found.histograms, of))


def _combined(
    context: EvaluationContext,
    native: HistogramCells,
    starts: NDArray[np.int64],
    members: NDArray[np.int64],
    divisors: NDArray[np.float64] | None,
) -> CombinedHistograms:
    """The sums or means of the groups. Histograms that are not computed yet are computed for some groups at a time."""
    if not isinstance(native.source, PendingHistograms):
        ones = np.ones(len(members))
        return native.histograms.combined(starts, members, ones, divisors, admit=context.in_hand.admit)
    source = native.source
    parts: list[CombinedHistograms] = []

    def combined(part: slice) -> CombinedHistograms:
        taken = source.part(members[starts[part.start] : starts[part.stop]])
        ends = starts[part.start : part.stop + 1] - starts[part.start]
        ones = np.ones(len(taken))
        return taken.combined(ends, np.arange(len(taken)), ones, None if divisors is None else divisors[part])

    slices = list(parts_of(starts, PENDING_MAX))
    for first in range(0, len(slices), PARTS_A_CHECK):
        context.check()
        some = slices[first : first + PARTS_A_CHECK]
        parts += on_cores(combined, some, PENDING_BYTES * PENDING_MAX * len(some))
    return joined_combined(parts) if parts else combined(slice(0, 0))

"""Selection: reads the newest sample of each step, or the samples of a range, from the storage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.model.stale import STALE_BITS
from tsdb.ops.cores import over_parts
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.selection.newest_kernels import newest_kernel, smoothed_kernel
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import LabelSets, Pool, no_labels, parsed
from tsdb.promql.syntax.tree import Edge, Extension, MatrixSelector, Subquery, VectorSelector


@dataclass(frozen=True, slots=True)
class Ranges:
    """The samples in (at - range, at] of each step. at_ms: int64 (steps,), ascending.

    With an extension, samples up to the lookback before the range count too; with `smoothed`, also those up to the
    lookback after it. before_ms and after_ms: how far these reach from `at`.
    """

    samples: Samples
    at_ms: NDArray[np.int64]
    range_ms: int
    before_ms: int
    after_ms: int
    extension: Extension = Extension.NONE


def shifted_times(
    context: EvaluationContext, node: VectorSelector | Subquery, times_ms: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The times at which a selector reads, int64 (steps,), after `@` and offset. times_ms: use these in place of the
    steps' own times."""
    times = context.times_ms if times_ms is None else times_ms
    if node.at is Edge.START:
        times = np.full_like(times, context.query_start_ms)
    elif node.at is Edge.END:
        times = np.full_like(times, context.query_end_ms)
    elif node.at is not None:
        times = np.full_like(times, node.at)
    return times if node.offset is None else times - context.offset_ms(node.offset)


def newest(context: EvaluationContext, node: VectorSelector) -> Block:
    """The vector of a selector."""
    return _newest(context, node, shifted_times(context, node), with_times=False)[0]


def newest_with_times(
    context: EvaluationContext, node: VectorSelector, at_ms: NDArray[np.int64]
) -> tuple[Block, NDArray[np.int64]]:
    """The vector of a selector at these times, and the time of each sample in it, int64 (series, steps)."""
    block, times_ms = _newest(context, node, at_ms, with_times=True)
    # Values between samples have the time of their step.
    return block, np.broadcast_to(at_ms, block.values.shape) if node.extension is Extension.SMOOTHED else times_ms


def _newest(
    context: EvaluationContext, node: VectorSelector, at_ms: NDArray[np.int64], *, with_times: bool
) -> tuple[Block, NDArray[np.int64]]:
    after_ms = context.lookback_ms if node.extension is Extension.SMOOTHED else 0
    stored = _stored(context, node, int(at_ms[0]) - context.lookback_ms + 1, int(at_ms[-1]) + after_ms)
    context.admit(len(stored.labels), context.steps)
    labels = parsed(context.pool, stored.labels)
    if node.extension is Extension.SMOOTHED:
        return _smoothed(context, labels, stored, at_ms), np.zeros((0, 0), np.int64)
    shape = len(labels), context.steps
    values, present = np.empty(shape), np.empty(shape, np.bool_)
    times_ms = np.empty(shape if with_times else (0, 0), np.int64)
    bits = stored.values.view(np.int64)

    def work(rows: slice) -> None:
        starts = stored.starts[rows.start : rows.stop + 1]
        part = values[rows].view(np.int64)
        newest_kernel(starts, stored.ts_ms, bits, at_ms, context.lookback_ms, part, times_ms[rows], present[rows])

    over_parts(work, len(labels), stored.values.nbytes + values.nbytes)
    block = Block(labels, values, present, np.zeros(shape[0], np.bool_))
    if present.all() or (kept := present.any(axis=1)).all():
        return block, times_ms
    rows = np.flatnonzero(kept)
    return block.subset(rows), times_ms[rows] if with_times else times_ms


def _smoothed(context: EvaluationContext, labels: LabelSets, stored: StoredSeries, at_ms: NDArray[np.int64]) -> Block:
    shape = len(stored.labels), context.steps
    samples = _live(labels, stored)
    values, present = np.empty(shape), np.empty(shape, np.bool_)
    smoothed_kernel(samples.starts, samples.ts_ms, samples.values, at_ms, context.lookback_ms, values, present)
    return Block(labels, values, present, np.zeros(shape[0], np.bool_)).compact()


def selected(context: EvaluationContext, node: MatrixSelector) -> Ranges:
    """The ranges of a range selector."""
    selector = node.selector
    range_ms = context.length_ms(node.range)
    at_ms = shifted_times(context, selector)
    before_ms = range_ms if selector.extension is Extension.NONE else range_ms + context.lookback_ms
    after_ms = context.lookback_ms if selector.extension is Extension.SMOOTHED else 0
    stored = _stored(context, selector, int(at_ms[0]) - before_ms + 1, int(at_ms[-1]) + after_ms)
    samples = _live(parsed(context.pool, stored.labels), stored)
    return Ranges(samples, at_ms, range_ms, before_ms, after_ms, selector.extension)


def no_samples(pool: Pool) -> Samples:
    """Samples without any series."""
    none = np.zeros(0, np.int64)
    return Samples(no_labels(pool, 0), np.zeros(1, np.int64), none, np.zeros(0), np.zeros(0, np.bool_))


def as_samples(block: Block, times_ms: NDArray[np.int64]) -> Samples:
    """The values of a block as samples."""
    starts = np.concatenate(([0], np.cumsum(block.present.sum(axis=1)))).astype(np.int64)
    rows, steps = np.nonzero(block.present)
    return Samples(block.labels, starts, times_ms[steps], block.values[rows, steps], block.loses_name)


def _stored(context: EvaluationContext, node: VectorSelector, start_ms: int, end_ms: int) -> StoredSeries:
    context.check()
    stored = context.storage.select(node.matchers, start_ms, end_ms)
    context.subqueries.read(len(stored.labels), len(stored.ts_ms))
    for warning in stored.warnings:
        context.annotations.warn_of_storage(warning)
    return stored


def _live(labels: LabelSets, stored: StoredSeries) -> Samples:
    """The samples without stale markers."""
    live = stored.values.view(np.int64) != STALE_BITS
    loses_name = np.zeros(len(labels), np.bool_)
    if live.all():
        return Samples(labels, stored.starts, stored.ts_ms, stored.values, loses_name)
    starts = np.concatenate(([0], np.cumsum(live)))[stored.starts]
    return Samples(labels, starts, stored.ts_ms[live], stored.values[live], loses_name)

"""Selection: from storage to the newest sample of each step, or to the samples of a range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.model.labels import parse_labels
from tsdb.promql.evaluate.block import Block, Samples
from tsdb.promql.evaluate.context import Context
from tsdb.promql.evaluate.labels import LabelSets, Pool, label_sets
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.promql.evaluate.window_kernels import STALE_BITS, newest_kernel, smoothed_kernel, windows_kernel
from tsdb.promql.syntax.tree import Edge, Extension, MatrixSelector, Subquery, VectorSelector


@dataclass(frozen=True, slots=True)
class Windows:
    """Samples and, for each series and step, those in (at - range, at]: [first, last), int64 (series, steps).

    at_ms: int64 (steps,), the ends of the windows. With an extension windows also hold samples up to the lookback
    before the range, and those of `smoothed` up to the lookback after it.
    """

    samples: Samples
    at_ms: NDArray[np.int64]
    range_ms: int
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    extension: Extension = Extension.NONE


def shifted_times(
    context: Context, node: VectorSelector | Subquery, times_ms: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The times at which a selector looks, int64 (steps,): with `@` and offset. times_ms: instead of the steps' own."""
    times = context.times_ms if times_ms is None else times_ms
    if node.at is Edge.START:
        times = np.full_like(times, context.query_start_ms)
    elif node.at is Edge.END:
        times = np.full_like(times, context.query_end_ms)
    elif node.at is not None:
        times = np.full_like(times, node.at)
    return times if node.offset is None else times - context.length_ms(node.offset)


def newest(
    context: Context, node: VectorSelector, at_ms: NDArray[np.int64] | None = None
) -> tuple[Block, NDArray[np.int64]]:
    """The vector of a selector, and the time of each sample in it, int64 (series, steps).

    at_ms: times at which it looks, instead of its own.
    """
    at_ms = shifted_times(context, node) if at_ms is None else at_ms
    after_ms = context.lookback_ms if node.extension is Extension.SMOOTHED else 0
    stored = _stored(context, node, int(at_ms.min()) - context.lookback_ms + 1, int(at_ms.max()) + after_ms)
    shape = len(stored.labels), context.steps
    context.admit(*shape)
    labels = _labels(context.pool, stored)
    if node.extension is Extension.SMOOTHED:
        block = _smoothed(context, labels, stored, at_ms)
        return block, np.broadcast_to(at_ms, block.values.shape)
    found, values = np.empty(shape, np.int64), np.empty(shape)
    newest_kernel(stored.starts, stored.ts_ms, stored.values.view(np.int64), at_ms, context.lookback_ms, found, values)
    block = Block(labels, values, found >= 0, np.zeros(shape[0], np.bool_))
    rows = block.present.any(axis=1)
    if not rows.all():
        kept = np.flatnonzero(rows)
        block, found = block.take(kept), found[kept]
    times = stored.ts_ms[found] if len(stored.ts_ms) else np.zeros(found.shape, np.int64)
    return block, times


def _smoothed(context: Context, labels: LabelSets, stored: StoredSeries, at_ms: NDArray[np.int64]) -> Block:
    shape = len(stored.labels), context.steps
    samples = _live(labels, stored)
    values, present = np.empty(shape), np.empty(shape, np.bool_)
    smoothed_kernel(samples.starts, samples.ts_ms, samples.values, at_ms, context.lookback_ms, values, present)
    return Block(labels, values, present, np.zeros(shape[0], np.bool_)).compact()


def selected(context: Context, node: MatrixSelector) -> Windows:
    """Windows of a range selector."""
    selector = node.selector
    range_ms = context.length_ms(node.range)
    at_ms = shifted_times(context, selector)
    before_ms, after_ms = _extent(context, selector.extension, range_ms)
    stored = _stored(context, selector, int(at_ms.min()) - before_ms + 1, int(at_ms.max()) + after_ms)
    samples = _live(_labels(context.pool, stored), stored)
    return windows(context, samples, at_ms, range_ms, selector.extension)


def windows(
    context: Context,
    samples: Samples,
    at_ms: NDArray[np.int64],
    range_ms: int,
    extension: Extension = Extension.NONE,
) -> Windows:
    """Windows over samples that are there."""
    shape = len(samples.starts) - 1, len(at_ms)
    context.admit(*shape)
    first, last = np.empty(shape, np.int64), np.empty(shape, np.int64)
    before_ms, after_ms = _extent(context, extension, range_ms)
    windows_kernel(samples.starts, samples.ts_ms, at_ms, before_ms, after_ms, first, last)
    return Windows(samples, at_ms, range_ms, first, last, extension)


def as_samples(block: Block, times_ms: NDArray[np.int64]) -> Samples:
    """The values of a block as samples."""
    starts = np.concatenate(([0], np.cumsum(block.present.sum(axis=1)))).astype(np.int64)
    rows, steps = np.nonzero(block.present)
    return Samples(block.labels, starts, times_ms[steps], block.values[rows, steps], block.loses_name)


def _extent(context: Context, extension: Extension, range_ms: int) -> tuple[int, int]:
    """(before, after) the time of a step, in milliseconds."""
    before_ms = range_ms if extension is Extension.NONE else range_ms + context.lookback_ms
    return before_ms, context.lookback_ms if extension is Extension.SMOOTHED else 0


def _stored(context: Context, node: VectorSelector, start_ms: int, end_ms: int) -> StoredSeries:
    context.check()
    stored = context.storage.select(node.matchers, start_ms, end_ms)
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


def _labels(pool: Pool, stored: StoredSeries) -> LabelSets:
    return label_sets(pool, [dict(parse_labels(labels)) for labels in stored.labels])

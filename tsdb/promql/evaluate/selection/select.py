"""Selection: reads the newest sample of each step, or the samples of a range, from the storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.histograms import GAUGE
from tsdb.model.stale import STALE_BITS
from tsdb.ops.cores import over_parts
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.native.histograms import HistogramCells, from_columns
from tsdb.promql.evaluate.native.windows import interpolated, places_of, windows_of
from tsdb.promql.evaluate.selection.newest_kernels import newest_kernel, smoothed_kernel
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets, Pool, no_labels, parsed
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
    return _newest(context, node, shifted_times(context, node))[0]


def newest_with_times(
    context: EvaluationContext, node: VectorSelector, at_ms: NDArray[np.int64]
) -> tuple[Block, NDArray[np.int64]]:
    """The vector of a selector at these times, and the time of each sample in it, int64 (series, steps)."""
    block, times_ms = _newest(context, node, at_ms, lambda stored: stored.ts_ms)
    # Values between samples have the time of their step.
    return block, np.broadcast_to(at_ms, block.values.shape) if node.extension is Extension.SMOOTHED else times_ms


def newest_with_starts(context: EvaluationContext, node: VectorSelector) -> tuple[Block, NDArray[np.int64]]:
    """The vector of a selector, and the start timestamp of each sample in it, int64 (series, steps), 0 for none."""
    return _newest(context, node, shifted_times(context, node), _start_times)


def _start_times(stored: StoredSeries) -> NDArray[np.int64]:
    start_ms = None if stored.details is None else stored.details.start_ms
    return np.zeros_like(stored.ts_ms) if start_ms is None else start_ms


def _newest(
    context: EvaluationContext,
    node: VectorSelector,
    at_ms: NDArray[np.int64],
    column_of: Callable[[StoredSeries], NDArray[np.int64]] | None = None,
) -> tuple[Block, NDArray[np.int64]]:
    """The vector, and of each sample in it the number in a column, int64 (series, steps); (0, 0) without a column."""
    after_ms = context.lookback_ms if node.extension is Extension.SMOOTHED else 0
    stored = _stored(context, node, int(at_ms[0]) - context.lookback_ms + 1, int(at_ms[-1]) + after_ms)
    context.admit(len(stored.labels), context.steps)
    labels = parsed(context.pool, stored.labels)
    if node.extension is Extension.SMOOTHED:
        return _smoothed(context, node, labels, stored, at_ms), np.zeros((0, 0), np.int64)
    shape = len(labels), context.steps
    values, present = np.empty(shape), np.empty(shape, np.bool_)
    takes = column_of is not None
    column, taken = (
        stored.ts_ms if column_of is None else column_of(stored),
        np.empty(shape if takes else (0, 0), np.int64),
    )
    bits = stored.values.view(np.int64)

    def work(rows: slice) -> None:
        starts = stored.starts[rows.start : rows.stop + 1]
        part = values[rows].view(np.int64)
        lookback_ms = context.lookback_ms
        newest_kernel(starts, stored.ts_ms, bits, column, at_ms, lookback_ms, part, taken[rows], present[rows])

    over_parts(work, len(labels), stored.values.nbytes + values.nbytes)
    native = None
    if (found := _histograms(context, node, stored)) is not None:
        of, unused = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        none = np.empty((0, 0), np.int64)
        newest_kernel(stored.starts, stored.ts_ms, found.of, column, at_ms, context.lookback_ms, of, none, unused)
        native = replace(found, of=of)
    block = Block(labels, values, present, np.zeros(shape[0], np.bool_), native)
    if present.all() or (kept := present.any(axis=1)).all():
        return block, taken
    rows = np.flatnonzero(kept)
    return block.subset(rows), taken[rows] if takes else taken


def _smoothed(
    context: EvaluationContext,
    node: VectorSelector,
    labels: LabelSets,
    stored: StoredSeries,
    at_ms: NDArray[np.int64],
) -> Block:
    shape = len(stored.labels), context.steps
    samples = _live(context, node, labels, stored)
    values, present = np.empty(shape), np.empty(shape, np.bool_)
    smoothed_kernel(samples.starts, samples.ts_ms, samples.values, at_ms, context.lookback_ms, values, present)
    block = Block(labels, values, present, np.zeros(shape[0], np.bool_))
    if samples.native is not None:
        block = _smoothed_histograms(context, node, samples, block, at_ms)
    return block.compact()


def _smoothed_histograms(
    context: EvaluationContext, node: VectorSelector, samples: Samples, block: Block, at_ms: NDArray[np.int64]
) -> Block:
    """The block with the histograms between samples. A step with floats and histograms around it has no value."""
    native = samples.native
    assert native is not None, "samples without histograms are smoothed by a kernel"
    low_ms, high_ms = at_ms - context.lookback_ms, at_ms + context.lookback_ms
    windows = windows_of(samples.starts, samples.ts_ms, low_ms, high_ms)
    totals = np.concatenate(([0], np.cumsum(native.of >= 0)))
    counts = totals[windows.high] - totals[windows.low]
    mixed = (counts > 0) & (counts < windows.sizes)
    _warn_of_metrics(context, node, block.labels, mixed, "encountered a mix of histograms and floats for metric name")
    after = places_of(samples.starts, samples.ts_ms, at_ms - 1)
    rows, steps = np.nonzero((counts > 0) & ~mixed)
    low, high, after = (part[rows, steps] for part in (windows.low, windows.high, after))
    times = at_ms[steps]
    right = np.minimum(after, high - 1)
    is_at = (after < high) & (samples.ts_ms[right] == times)
    used = is_at | (after > low)
    rows, steps, high, after, right, is_at, times = (
        part[used] for part in (rows, steps, high, after, right, is_at, times)
    )
    is_between = ~is_at & (after < high)
    left = np.where(is_at, right, after - 1)
    right = np.where(is_between, right, left)
    histograms, pair = native.histograms, (native.of[left], native.of[right])
    hints = histograms.hints
    is_counter = (hints[pair[0]] != GAUGE) | (hints[pair[1]] != GAUGE)
    spans = samples.ts_ms[left], samples.ts_ms[right]
    found = interpolated(histograms, pair, spans, times, is_counter)
    failed = np.zeros_like(mixed)
    failed[rows[found.failed >= 0], steps[found.failed >= 0]] = True
    problem = "vector contains a mix of histograms with exponential and custom buckets schemas for metric name"
    _warn_of_metrics(context, node, block.labels, failed, problem)
    good = found.failed < 0
    of = np.full(block.values.shape, -1, np.int64)
    of[rows[good], steps[good]] = np.flatnonzero(good)
    present = (block.present & (counts == 0)) | (of >= 0)
    return replace(block, present=present, native=HistogramCells(found.histograms, of))


def _warn_of_metrics(
    context: EvaluationContext, node: VectorSelector, labels: LabelSets, where: NDArray[np.bool_], problem: str
) -> None:
    rows = np.flatnonzero(where.any(axis=1))
    if len(rows):
        for name in labels.pool.texts(dict.fromkeys(labels.column(METRIC_NAME)[rows].tolist())):
            context.annotations.warn(f'{problem} "{name}"', node.span)


def selected(context: EvaluationContext, node: MatrixSelector) -> Ranges:
    """The ranges of a range selector."""
    selector = node.selector
    range_ms = context.length_ms(node.range)
    at_ms = shifted_times(context, selector)
    before_ms = range_ms if selector.extension is Extension.NONE else range_ms + context.lookback_ms
    after_ms = context.lookback_ms if selector.extension is Extension.SMOOTHED else 0
    stored = _stored(context, selector, int(at_ms[0]) - before_ms + 1, int(at_ms[-1]) + after_ms)
    samples = _live(context, selector, parsed(context.pool, stored.labels), stored)
    return Ranges(samples, at_ms, range_ms, before_ms, after_ms, selector.extension)


def no_samples(pool: Pool) -> Samples:
    """Samples without any series."""
    none = np.zeros(0, np.int64)
    return Samples(no_labels(pool, 0), np.zeros(1, np.int64), none, np.zeros(0), np.zeros(0, np.bool_))


def as_samples(block: Block, times_ms: NDArray[np.int64]) -> Samples:
    """The values of a block as samples."""
    starts = np.concatenate(([0], np.cumsum(block.present.sum(axis=1)))).astype(np.int64)
    rows, steps = np.nonzero(block.present)
    native = block.native and replace(block.native, of=block.native.of[rows, steps])
    return Samples(block.labels, starts, times_ms[steps], block.values[rows, steps], block.loses_name, native)


def _stored(context: EvaluationContext, node: VectorSelector, start_ms: int, end_ms: int) -> StoredSeries:
    context.check()
    stored = context.storage.select(node.matchers, start_ms, end_ms)
    context.subqueries.read(len(stored.labels), len(stored.ts_ms))
    for warning in stored.warnings:
        context.annotations.warn_of_storage(warning)
    return stored


def _histograms(context: EvaluationContext, node: VectorSelector, stored: StoredSeries) -> HistogramCells | None:
    """The histograms of a read, in the order of their columns, and the one of each sample."""
    details = stored.details
    if details is None or details.histograms is None:
        return None
    assert details.histogram_of is not None, "histograms come with the samples that have them"
    histograms, of = from_columns(details.histograms), details.histogram_of
    if not context.needs_totals(node):
        return HistogramCells(histograms, of)
    of_samples = np.flatnonzero((of >= 0) & (stored.values.view(np.int64) != STALE_BITS))
    row_of = np.searchsorted(stored.starts, of_samples, side="right")
    known = histograms.with_resets(of[of_samples], np.diff(row_of, prepend=-1) == 0)
    return HistogramCells(known.without_buckets(), of)


def _live(context: EvaluationContext, node: VectorSelector, labels: LabelSets, stored: StoredSeries) -> Samples:
    """The samples without stale markers."""
    live = stored.values.view(np.int64) != STALE_BITS
    loses_name = np.zeros(len(labels), np.bool_)
    native = _histograms(context, node, stored)
    start_ms = stored.details.start_ms if stored.details is not None and context.start_timestamps else None
    if live.all():
        return Samples(labels, stored.starts, stored.ts_ms, stored.values, loses_name, native, start_ms)
    if native is not None:
        native = replace(native, of=native.of[live])
    if start_ms is not None:
        start_ms = start_ms[live]
    starts = np.concatenate(([0], np.cumsum(live)))[stored.starts]
    return Samples(labels, starts, stored.ts_ms[live], stored.values[live], loses_name, native, start_ms)

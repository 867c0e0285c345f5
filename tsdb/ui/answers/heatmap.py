"""Heatmap: native histograms over time as cells, and the quantiles that are drawn as lines over them.

The histograms of all series are added at each step. The steps then get one set of buckets: the finest resolution that
all of them have and that fits HEATMAP_ROWS_MAX rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.model.histograms import SCHEMA_MAX, SCHEMA_MIN
from tsdb.promql.evaluate.native.bucket_kernels import BOUNDS, COUNT, ORIGIN, THRESHOLD, ZERO_COUNT, bound_of
from tsdb.promql.evaluate.native.histograms import NativeHistograms
from tsdb.promql.evaluate.vectors.block import Block, stacked
from tsdb.promql.evaluate.vectors.labels import label_sets
from tsdb.promql.syntax.numbers import shown_f

HEATMAP_ROWS_MAX = 160
QUANTILES = (0.5, 0.9, 0.99)
MIXED = "Custom and exponential buckets can't be added: where both are, cells are missing. Select one of them."
ZERO = 0  # Key of the zero bucket, between those of negative and of positive buckets.


@dataclass(frozen=True, slots=True)
class Heatmap:
    """lower, upper: float64 (rows,), bounds of each row, ascending. counts: float64 (rows, steps), observations of each
    cell; NaN at steps without a histogram. series: number of series that are added. notes: sentences for the reader."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    counts: NDArray[np.float64]
    series: int
    notes: tuple[str, ...]

    def answer(self) -> dict[str, Any]:
        """The fields of the answer. Bounds are texts, because they may be infinite."""
        bounds = {"lower": [*map(shown_f, self.lower.tolist())], "upper": [*map(shown_f, self.upper.tolist())]}
        return {**bounds, "counts": np.ascontiguousarray(self.counts), "lines": len(QUANTILES)}


@dataclass(frozen=True, slots=True)
class AddedHistograms:
    """The sum of the histograms of a block at each step that has one. present: bool (steps,)."""

    histograms: NativeHistograms
    present: NDArray[np.bool_]
    series: int
    notes: tuple[str, ...]

    def heatmap(self) -> Heatmap:
        """The cells of all steps."""
        found = self.histograms
        rows = _custom_rows(found) if found.has_bounds.any() else _exponential_rows(found)
        counts = np.full((len(rows.lower), len(self.present)), np.nan)
        counts[:, self.present] = rows.counts
        return Heatmap(rows.lower, rows.upper, counts, self.series, self.notes)


@dataclass(frozen=True, slots=True)
class _HeatmapRows:
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    counts: NDArray[np.float64]


def added_histograms(block: Block) -> AddedHistograms | None:
    """The histograms of a block, added at each step. None for a block of floats."""
    if block.native is None or not block.is_histogram.any():
        return None
    native = block.native.histograms
    found = _added(block, native, SCHEMA_MAX)
    if found.histograms.has_bounds.any():
        # The kind of buckets that more steps have stays.
        are_custom = found.histograms.has_bounds
        keep = are_custom if 2 * are_custom.sum() >= len(are_custom) else ~are_custom
        if keep.all():
            return found
        present = found.present.copy()
        present[np.flatnonzero(present)[~keep]] = False
        kept = found.histograms.take(np.flatnonzero(keep))
        return AddedHistograms(kept, present, found.series, (*found.notes, *(() if found.notes else (MIXED,))))
    schemas = found.histograms.schemas
    schema = int(schemas.min(initial=SCHEMA_MAX))
    if (schemas != schema).any():
        found = _added(block, native, schema)
    # One row is that of the zero bucket.
    while len(np.unique(found.histograms.keys)) >= HEATMAP_ROWS_MAX and schema > SCHEMA_MIN:
        schema -= 1
        found = _added(block, native, schema)
    return found


def _added(block: Block, native: NativeHistograms, schema_max: int) -> AddedHistograms:
    assert block.native is not None, "the caller has checked"
    where = block.is_histogram.T
    members = np.ascontiguousarray(block.native.of.T[where])
    counts = where.sum(axis=1)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    schemas = np.full(len(counts), schema_max, np.int64)
    combined = native.combined(starts, members, np.ones(len(members)), schema_max=schemas)
    is_good = (combined.failed < 0) & (counts > 0)
    notes = (MIXED,) if (combined.failed >= 0).any() else ()
    series = int(where.any(axis=0).sum())
    return AddedHistograms(combined.histograms.take(np.flatnonzero(is_good)), is_good, series, notes)


def _exponential_rows(found: NativeHistograms) -> _HeatmapRows:
    keys = np.unique(np.append(found.keys, ZERO))
    step_of = np.repeat(np.arange(len(found)), np.diff(found.starts))
    counts = np.zeros((len(keys), len(found)))
    counts[np.searchsorted(keys, found.keys), step_of] = found.buckets
    zero = int(np.searchsorted(keys, ZERO))
    counts[zero] = found.numbers[:, ZERO_COUNT]
    threshold = float(found.numbers[:, THRESHOLD].max(initial=0.0))
    schema = int(found.schemas.min(initial=SCHEMA_MAX))
    lower, upper = np.empty(len(keys)), np.empty(len(keys))
    for row, key in enumerate(keys.tolist()):
        index = abs(key) - ORIGIN
        near, far = (0.0, threshold) if key == ZERO else (bound_of(index - 1, schema), bound_of(index, schema))
        lower[row], upper[row] = (near, far) if key > ZERO else (-far, -near if key else far)
    used = np.ones(len(keys), np.bool_)
    used[zero] = counts[zero].any() or len(keys) == 1
    return _HeatmapRows(lower[used], upper[used], counts[used])


def _custom_rows(found: NativeHistograms) -> _HeatmapRows:
    """The counts between the bounds that all steps have."""
    bounds = [found.bounds[index] for index in found.whole[:, BOUNDS].tolist()]
    common = sorted(set(bounds[0]).intersection(*bounds[1:]))
    every = max(1, math.ceil((len(common) + 1) / HEATMAP_ROWS_MAX))
    edges = np.array([*common[every - 1 :: every], math.inf])
    cumulative = np.empty((len(edges), len(found)))
    for step, own in enumerate(bounds):
        part = slice(found.starts[step], found.starts[step + 1])
        sums = np.concatenate((np.zeros(1), np.cumsum(found.buckets[part])))
        # The buckets up to a bound are those whose index is at most its own.
        last = np.searchsorted(np.array(own), edges)
        cumulative[:, step] = sums[np.searchsorted(found.keys[part] - ORIGIN, last, side="right")]
    lower = np.concatenate((np.array([-math.inf]), edges[:-1]))
    return _HeatmapRows(lower, edges, np.diff(cumulative, axis=0, prepend=0.0))


def with_quantiles(block: Block, added: AddedHistograms) -> Block:
    """The quantiles of the added histograms, followed by the floats of the block."""
    values = np.zeros((len(QUANTILES), block.steps))
    for row, quantile in enumerate(QUANTILES):
        values[row, added.present] = added.histograms.quantiles(np.full(len(added.histograms), quantile))[0]
    labels = label_sets(block.labels.pool, [{"quantile": shown_f(quantile)} for quantile in QUANTILES])
    has_counts = np.zeros(block.steps, np.bool_)
    has_counts[added.present] = added.histograms.numbers[:, COUNT] > 0
    present = np.repeat(has_counts[np.newaxis], len(QUANTILES), axis=0)
    lines = Block(labels, values, present, np.zeros(len(QUANTILES), np.bool_))
    floats = block.floats()
    return stacked((lines, floats)) if len(floats) else lines

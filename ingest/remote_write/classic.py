"""Makes classic series of native histograms: `_bucket` with `le`, `_sum`, `_count`, at the boundaries of their schema.

Buckets are cumulative. A boundary is emitted for the upper end of each bucket and for the lower end of each span, so
that a gap between spans stays empty. Bounds of buckets as in Prometheus: bucket i of schema s ends at 2^(i * 2^-s);
custom bounds stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tsdb.model.histograms import HistogramColumns, HistogramShape


@dataclass(frozen=True, slots=True)
class ClassicHistogram:
    """bounds: texts of `le` below +Inf, ascending; cumulative: counts up to each."""

    bounds: Sequence[str]
    cumulative: Sequence[float]


def bounds_max(shape: HistogramShape) -> int:
    """Upper bound of the number of classic buckets."""
    return shape.buckets + len(shape.positive) + len(shape.negative) + len(shape.bounds) + 2


def classic(columns: HistogramColumns, row: int) -> ClassicHistogram:
    """The classic buckets of one sound histogram."""
    shape = columns.shapes[columns.shape_of[row]]
    counts = columns.buckets[columns.starts[row] : columns.starts[row + 1]].tolist()
    pairs = list(zip(shape.indexes.tolist(), counts, strict=True))
    positive, negative = pairs[: shape.positive_buckets], pairs[shape.positive_buckets :]
    if shape.has_bounds:
        return _custom(shape, dict(positive))
    steps: list[tuple[float, float]] = []
    total = 0.0
    # Buckets ascend from the lowest value. Bucket i is [-bound(i), -bound(i - 1)).
    for index, count in reversed(negative):
        if not steps or steps[-1][0] != -bound(index, shape.schema):
            steps.append((-bound(index, shape.schema), total))
        total += count
        steps.append((-bound(index - 1, shape.schema), total))
    if negative:
        steps.append((-shape.zero_threshold, total))
    total += float(columns.zero_counts[row])
    steps.append((shape.zero_threshold, total))
    for index, count in positive:
        if steps[-1][0] < bound(index - 1, shape.schema):
            steps.append((bound(index - 1, shape.schema), total))
        total += count
        steps.append((bound(index, shape.schema), total))
    return _ascending(steps)


def _custom(shape: HistogramShape, counts: dict[int, float]) -> ClassicHistogram:
    steps, total = [], 0.0
    for index, upper in enumerate(shape.bounds):
        total += counts.get(index, 0.0)
        steps.append((upper, total))
    return _ascending(steps)


def _ascending(steps: Sequence[tuple[float, float]]) -> ClassicHistogram:
    """A bound that comes twice, as where a bucket overlaps the zero bucket, has its last count."""
    merged: dict[float, float] = {}
    lowest = -math.inf
    for upper, total in steps:
        lowest = max(lowest, upper)
        merged[lowest] = total
    finite = {upper: total for upper, total in merged.items() if math.isfinite(upper)}
    return ClassicHistogram([bound_text(upper) for upper in finite], list(finite.values()))


@lru_cache(100_000)
def bound(index: int, schema: int) -> float:
    """Upper end of a positive bucket; infinity above the largest float."""
    if schema <= 0:
        exponent, fraction = index << -schema, 0.5
    else:
        exponent, fraction = index >> schema, 0.5 * 2.0 ** ((index & (1 << schema) - 1) / (1 << schema))
    try:
        return math.ldexp(fraction, exponent + 1)
    except OverflowError:
        return math.inf


@lru_cache(100_000)
def bound_text(value: float) -> str:
    """A bound as Go writes it in `le`: the shortest decimal, with an exponent below 1e-4 and from 1e6 on."""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return np.format_float_positional(value, trim="-")
    return np.format_float_scientific(value, trim="-", exp_digits=2)

"""Buckets of histograms with their bounds, as answers and labels show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tsdb.promql.evaluate.native.bucket_kernels import ORIGIN, bound_of
from tsdb.promql.evaluate.native.histograms import NativeHistograms
from tsdb.promql.syntax.numbers import shown_g


class ShownBucket(NamedTuple):
    """A bucket that is not empty. has_lower, has_upper: whether its bounds are a part of it."""

    lower: float
    upper: float
    has_lower: bool
    has_upper: bool
    observations: float


def buckets_of(histograms: NativeHistograms, row: int) -> Iterator[ShownBucket]:
    """The buckets of a histogram that are not empty, ascending."""
    part = slice(histograms.starts[row], histograms.starts[row + 1])
    schema, bounds_of, _ = histograms.whole[row].tolist()
    _, _, zero_count, threshold = histograms.numbers[row].tolist()
    zero = ShownBucket(-threshold, threshold, True, True, zero_count) if zero_count > 0 else None
    for key, count in zip(histograms.keys[part].tolist(), histograms.buckets[part].tolist(), strict=True):
        if zero is not None and key > 0:
            yield zero
            zero = None
        if count != 0:
            bounds = histograms.bounds[bounds_of] if bounds_of >= 0 else None
            yield _custom(key - ORIGIN, bounds, count) if bounds is not None else _exponential(key, schema, count)
    if zero is not None:
        yield zero


def _custom(index: int, bounds: Sequence[float], count: float) -> ShownBucket:
    lower = bounds[index - 1] if index else -math.inf
    upper = bounds[index] if index < len(bounds) else math.inf
    return ShownBucket(lower, upper, index == 0, True, count)


def _exponential(key: int, schema: int, count: float) -> ShownBucket:
    index = abs(key) - ORIGIN
    near, far = bound_of(index - 1, schema), bound_of(index, schema)
    return ShownBucket(near, far, False, True, count) if key > 0 else ShownBucket(-far, -near, True, False, count)


def shown_histograms(histograms: NativeHistograms) -> Iterator[str]:
    """Each histogram as Prometheus writes it: `{count:3, sum:5, (1,2]:3}`."""
    for row in range(len(histograms)):
        count, total, _, _ = histograms.numbers[row].tolist()
        parts = [f"count:{shown_g(count)}", f"sum:{shown_g(total)}"]
        for bucket in buckets_of(histograms, row):
            opening, closing = "[" if bucket.has_lower else "(", "]" if bucket.has_upper else ")"
            bounds = f"{opening}{shown_g(bucket.lower)},{shown_g(bucket.upper)}{closing}"
            parts.append(f"{bounds}:{shown_g(bucket.observations)}")
        yield f"{{{', '.join(parts)}}}"

"""The kernel that makes buckets and quantiles of points: boundaries and cumulative counts.

An exponential histogram gets the boundaries of its schema: the upper ends of the buckets between the first and the last
one that is not empty, the lower end of the first, and the zero bucket's threshold. A scale above 8 is reduced to 8, as
Prometheus does for native histograms. Python twin: tests/support/oracles/otlp_twin.py.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import accumulate, repeat
from operator import mul

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.wire.field_kernels import (
    BOUNDS_AT,
    BOUNDS_END,
    COUNTS_AT,
    COUNTS_END,
    EXPONENTIAL,
    HISTOGRAM,
    METRIC_KIND,
    NEGATIVE_OFFSET,
    NEGATIVES_AT,
    NEGATIVES_END,
    POINT_METRIC,
    POINT_SCALE,
    POINT_ZERO_COUNT,
    POINT_ZERO_THRESHOLD,
    POSITIVE_OFFSET,
    SUMMARY,
)
from tsdb.codec.jit import Array2, helper, request_kernel
from tsdb.codec.memory_kernels import as_int64

SCALE_MIN, SCALE_MAX = -4, 8  # The schemas of Prometheus's native histograms.
FRACTION_BITS = SCALE_MAX
EXPONENT_MAX = 5000  # Indexes beyond this one are outside the range of a float64 in both directions.


def _fractions() -> NDArray[np.float64]:
    """2 ** (i / 256), correctly rounded: two machines write the same text of a boundary."""
    with localcontext() as context:
        context.prec = 50
        # Only one power is computed, because each takes 0.2 ms, at every start.
        root = Decimal(2) ** (1 / Decimal(1 << FRACTION_BITS))
        return np.array(
            [float(power) for power in accumulate(repeat(root, (1 << FRACTION_BITS) - 1), mul, initial=Decimal(1))]
        )


FRACTIONS = _fractions()


@request_kernel
def buckets_kernel(
    metrics: Array2[np.int64],
    points: Array2[np.int64],
    counts: NDArray[np.int64],
    bounds: NDArray[np.int64],
    keeps_native: bool,
    spans: Array2[np.int64],
    boundaries: NDArray[np.float64],
    values: NDArray[np.float64],
) -> int:
    """Fills the span of each point, and boundary and value of each bucket or quantile; returns their number.

    keeps_native: exponential histograms stay as they are, so that they have no boundaries.
    """
    size = 0
    bits = as_int64(boundaries)
    value_bits = as_int64(values)
    for p in range(points.shape[0]):
        row = points[p]
        kind = metrics[row[POINT_METRIC], METRIC_KIND]
        spans[p, 0] = size
        if kind == HISTOGRAM:
            number = min(row[COUNTS_END] - row[COUNTS_AT], row[BOUNDS_END] - row[BOUNDS_AT])
            total = 0
            for i in range(number):
                total += counts[row[COUNTS_AT] + i]
                bits[size], values[size] = bounds[row[BOUNDS_AT] + i], unsigned(total)
                size += 1
        elif kind == SUMMARY:
            for i in range(row[COUNTS_END] - row[COUNTS_AT]):
                bits[size], value_bits[size] = bounds[row[BOUNDS_AT] + i], counts[row[COUNTS_AT] + i]
                size += 1
        elif kind == EXPONENTIAL and not keeps_native:
            size = _exponential(row, counts, boundaries, values, size)
        spans[p, 1] = size
    return size


@helper
def unsigned(value: int) -> float:
    """The float64 of an int64 taken as unsigned."""
    return float(np.uint64(value))


@helper
def _exponential(
    row: NDArray[np.int64],
    counts: NDArray[np.int64],
    boundaries: NDArray[np.float64],
    values: NDArray[np.float64],
    size: int,
) -> int:
    """Append the buckets of one point behind the first `size`, boundaries ascending; returns the new size."""
    schema = min(row[POINT_SCALE], SCALE_MAX)
    if schema < SCALE_MIN:
        return size
    shift = min(row[POINT_SCALE] - schema, 63)
    total = 0
    first, last = _used(counts, row[NEGATIVES_AT], row[NEGATIVES_END])
    if last >= first:
        offset = row[NEGATIVE_OFFSET] - row[NEGATIVES_AT]
        index = (last + offset) >> shift
        boundaries[size], values[size] = -_boundary(index + 1, schema), 0.0
        size += 1
        i = last
        while i >= first:
            index = (i + offset) >> shift
            while i >= first and (i + offset) >> shift == index:
                total += counts[i]
                i -= 1
            boundaries[size], values[size] = -_boundary(index, schema), unsigned(total)
            size += 1
    if row[POINT_ZERO_COUNT] != 0:
        total += row[POINT_ZERO_COUNT]
        as_int64(boundaries)[size], values[size] = row[POINT_ZERO_THRESHOLD], unsigned(total)
        size += 1
    first, last = _used(counts, row[COUNTS_AT], row[COUNTS_END])
    if last >= first:
        offset = row[POSITIVE_OFFSET] - row[COUNTS_AT]
        index = (first + offset) >> shift
        boundaries[size], values[size] = _boundary(index, schema), unsigned(total)
        size += 1
        i = first
        while i <= last:
            index = (i + offset) >> shift
            while i <= last and (i + offset) >> shift == index:
                total += counts[i]
                i += 1
            boundaries[size], values[size] = _boundary(index + 1, schema), unsigned(total)
            size += 1
    return size


@helper
def _used(counts: NDArray[np.int64], begin: int, end: int) -> tuple[int, int]:
    """The first and the last of counts [begin, end) that are not 0; the last is before the first if none is."""
    while begin < end and counts[begin] == 0:
        begin += 1
    while begin < end and counts[end - 1] == 0:
        end -= 1
    return begin, end - 1


@helper
def _boundary(index: int, schema: int) -> float:
    """2 ** (index / 2 ** schema): the lower end of bucket `index`."""
    if schema <= 0:
        index = min(max(index, -EXPONENT_MAX), EXPONENT_MAX)
        return math.ldexp(1.0, min(max(index << -schema, -EXPONENT_MAX), EXPONENT_MAX))
    fraction = (index & ((1 << schema) - 1)) << (FRACTION_BITS - schema)
    return math.ldexp(FRACTIONS[fraction], min(max(index >> schema, -EXPONENT_MAX), EXPONENT_MAX))

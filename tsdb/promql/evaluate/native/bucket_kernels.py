"""Computes keys and bounds of buckets, and the zero bucket, inside of kernels.

The key of a bucket orders all buckets of a histogram by their values: ORIGIN + index of a positive bucket, and minus
that of a negative one. The zero bucket has no key and lies between them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper

ORIGIN = 1 << 32  # Indexes are int32, so the key of a positive bucket is positive.
CUSTOM = -53  # Schema of custom bounds.
COUNT, SUM, ZERO_COUNT, THRESHOLD = range(4)  # Columns of `numbers`.
SCHEMA, BOUNDS, HINT = range(3)  # Columns of `whole`.

_LARGEST = 1.7976931348623157e308
_ROOT_OF_2 = 1.414213562373095  # Prometheus's, one bit below the nearest float.


def _fractions() -> NDArray[np.float64]:
    """Bounds in [1, 2) of schema 8, bit for bit those of Prometheus: of each schema every second bound is that of the
    schema below, and the one behind it is that times the schema's base."""
    found = [1.0]
    for schema in range(1, 9):
        base = _ROOT_OF_2 if schema == 1 else 2.0 ** (2.0**-schema)
        found = [bound for below in found for bound in (below, below * base)]
    return np.array(found)


_FRACTIONS = _fractions()
_POWER_MIN, _POWER_MAX = -1074, 1023
_POWERS = np.array([2.0**exponent for exponent in range(_POWER_MIN, _POWER_MAX + 1)])


@helper
def bound_of(index: int, schema: int) -> float:
    """The upper bound of a positive bucket of an exponential schema. The last bucket of finite numbers ends at the
    largest one, and the next one at infinity."""
    if schema <= 0:
        exponent, fraction = index << -schema, 1.0
        if index > 2048 or index < -2048:
            exponent = 2048 if index > 0 else -2048
    else:
        exponent = index >> schema
        fraction = _FRACTIONS[(index - (exponent << schema)) << (8 - schema)]
    if exponent > _POWER_MAX:
        return _LARGEST if exponent == _POWER_MAX + 1 and fraction == 1.0 else math.inf
    if exponent < _POWER_MIN:
        return 0.0
    return float(fraction * _POWERS[exponent - _POWER_MIN])


@helper
def reduced(key: int, shift: int) -> int:
    """The key of the bucket that a bucket is a part of, in a schema that is lower by `shift`."""
    if shift == 0:
        return key
    if key > 0:
        return ((key - ORIGIN - 1) >> shift) + 1 + ORIGIN
    return -(((-key - ORIGIN - 1) >> shift) + 1 + ORIGIN)


@helper
def custom_key(key: int, starts: NDArray[np.int64], bounds: NDArray[np.float64], source: int, target: int) -> int:
    """The key among the bounds `target` of a bucket of the bounds `source`, of which the others are a part."""
    if source == target:
        return key
    size = starts[target + 1] - starts[target]
    if key - ORIGIN >= starts[source + 1] - starts[source]:
        return int(ORIGIN + size)
    bound = bounds[starts[source] + key - ORIGIN]
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if bounds[starts[target] + middle] >= bound:
            high = middle
        else:
            low = middle + 1
    return ORIGIN + low


@helper
def first_positive(keys: NDArray[np.int64], low: int, high: int) -> int:
    """The place of the first positive bucket in [low, high)."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] > 0:
            high = middle
        else:
            low = middle + 1
    return low


@helper
def widened(
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    low: int,
    high: int,
    schema: int,
    zero_count: float,
    threshold: float,
    wanted: float,
) -> tuple[float, float]:
    """(count, threshold) of the zero bucket when it reaches to `wanted` at least, or to the end of a filled bucket in
    which that lies. As in Prometheus (model/histogram/float_histogram.go, `zeroCountForLargerThreshold`)."""
    if wanted == threshold:
        return zero_count, wanted
    split = first_positive(keys, low, high)
    while True:
        total = zero_count
        for at in range(split, high):
            index = keys[at] - ORIGIN
            if bound_of(index - 1, schema) >= wanted:
                break
            total += buckets[at]
            upper = bound_of(index, schema)
            if upper > wanted:
                if buckets[at] != 0:
                    wanted = upper
                break
        is_wider = False
        for at in range(split - 1, low - 1, -1):
            index = -keys[at] - ORIGIN
            if bound_of(index - 1, schema) >= wanted:
                break
            total += buckets[at]
            upper = bound_of(index, schema)
            if upper > wanted:
                if buckets[at] != 0:
                    wanted, is_wider = upper, True
                break
        if not is_wider:
            return total, wanted


@helper
def limits_of(
    key: int, schema: int, starts: NDArray[np.int64], bounds: NDArray[np.float64], bounds_of: int
) -> tuple[float, float]:
    """(lower, upper) bounds of a bucket that is not the zero bucket."""
    if schema != CUSTOM:
        if key > 0:
            return bound_of(key - ORIGIN - 1, schema), bound_of(key - ORIGIN, schema)
        return -bound_of(-key - ORIGIN, schema), -bound_of(-key - ORIGIN - 1, schema)
    index, size = key - ORIGIN, starts[bounds_of + 1] - starts[bounds_of]
    first = starts[bounds_of]
    lower = -math.inf if index == 0 else bounds[first + min(index, size) - 1]
    upper = math.inf if index >= size else bounds[first + index]
    return lower, upper

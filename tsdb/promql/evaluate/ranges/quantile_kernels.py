"""Computes quantiles of values in any order, by selection (Hoare, "Algorithm 65: find", CACM 1961)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper


@helper
def quantile_of(q: float, values: NDArray[np.float64], count: int) -> float:
    """The q-quantile of values [0, count), by linear interpolation between neighbours. NaN counts as the smallest
    value.

    Changes the order of the values.

    """
    if count == 0 or math.isnan(q):
        return math.nan
    if q < 0:
        return -math.inf
    if q > 1:
        return math.inf
    nans = 0
    for index in range(count):
        if math.isnan(values[index]):
            values[index] = values[nans]
            values[nans] = math.nan
            nans += 1
    rank = q * (count - 1)
    lower = math.floor(rank)
    upper = min(count - 1, lower + 1)
    weight = rank - math.floor(rank)
    if upper < nans:
        return math.nan
    if lower < nans:
        return math.nan
    low = _select(values, nans, count, lower)
    high = low
    if upper > lower:
        high = values[upper]
        for index in range(upper + 1, count):
            high = min(high, values[index])
    return low * (1 - weight) + high * weight


@helper
def _select(values: NDArray[np.float64], first: int, end: int, wanted: int) -> float:
    """The value at an index of the ascending order of values [first, end). Smaller values are moved before it."""
    low, high = first, end - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if wanted <= right:
            high = right
        elif wanted >= left:
            low = left
        else:
            return float(values[wanted])
    return float(values[wanted])

"""This kernel computes the functions of classic histograms."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, Array3, helper, kernel

QUANTILE, FRACTION = range(2)

_SMALL_DIFFERENCE = 1e-12  # Counts whose relative difference is below this are taken as equal.


@kernel
def histogram_kernel(
    code: int,
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    values: Array2[np.float64],
    present: Array2[np.bool_],
    one: Array2[np.float64],
    two: Array2[np.float64],
    out: Array3[np.float64],
    out_present: Array2[np.bool_],
    forced: Array3[np.float64],
) -> None:
    """Write out (parameters, histograms, steps) and out_present (histograms, steps).

    Rows of histogram h: order[starts[h]:starts[h + 1]], by bound. one, two: quantiles, or the ends of ranges,
    (parameters, steps). forced (parameters, histograms, 6) begins as zeros: the number of steps whose counts fell, the
    first and the last bound and the largest difference there, the first and the last step.
    """
    for histogram in range(starts.size - 1):
        size = starts[histogram + 1] - starts[histogram]
        upper, counts = np.empty(size, np.float64), np.empty(size, np.float64)
        for step in range(values.shape[1]):
            used = _gather(
                order[starts[histogram] : starts[histogram + 1]], bounds, values, present, step, upper, counts
            )
            out_present[histogram, step] = used > 0
            if used == 0:
                continue
            # As in Prometheus, a quantile uses the buckets that the quantile before it left. So the counts of equal
            # bounds are added up again.
            for number in range(one.shape[0]):
                parameter = one[number, step]
                if code == QUANTILE:
                    quantile = _quantile(parameter, upper, counts, used, forced[number, histogram], step)
                    out[number, histogram, step] = quantile
                else:
                    out[number, histogram, step] = _fraction(parameter, two[number, step], upper, counts, used)


@helper
def _gather(
    rows: NDArray[np.int64],
    bounds: NDArray[np.float64],
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    step: int,
    upper: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> int:
    """Collect the buckets of one step by bound. Returns their number. A bound of NaN counts only when there is no other
    bound."""
    used = 0
    for row in rows:
        if present[row, step] and not (used and math.isnan(bounds[row])):
            upper[used], counts[used] = bounds[row], values[row, step]
            used += 1
    return used


@helper
def _coalesce(upper: NDArray[np.float64], counts: NDArray[np.float64], used: int) -> int:
    """Add up the counts of equal bounds, at the front. Returns the number of bounds."""
    last = 0
    for bucket in range(1, used):
        if upper[bucket] == upper[last]:
            counts[last] += counts[bucket]
        else:
            last += 1
            upper[last], counts[last] = upper[bucket], counts[bucket]
    return last + 1


@helper
def _sort(upper: NDArray[np.float64], counts: NDArray[np.float64], used: int) -> None:
    """Put buckets in the order of their bounds. They nearly are."""
    for bucket in range(1, used):
        bound, count = upper[bucket], counts[bucket]
        before = bucket - 1
        while before >= 0 and upper[before] > bound:
            upper[before + 1], counts[before + 1] = upper[before], counts[before]
            before -= 1
        upper[before + 1], counts[before + 1] = bound, count


@helper
def _quantile(
    q: float, upper: NDArray[np.float64], counts: NDArray[np.float64], used: int, forced: NDArray[np.float64], step: int
) -> float:
    if math.isnan(q):
        return math.nan
    if q < 0:
        return -math.inf
    if q > 1:
        return math.inf
    _sort(upper, counts, used)
    if not (math.isinf(upper[used - 1]) and upper[used - 1] > 0):
        return math.nan
    used = _coalesce(upper, counts, used)
    _raise(upper, counts, used, forced, step)
    observations = counts[used - 1]
    if used < 2 or observations == 0:
        return math.nan
    rank = q * observations
    # A binary search like Go's sort.Search, because counts that are NaN have no order.
    bucket, end = 0, used - 1
    while bucket < end:
        middle = (bucket + end) // 2
        if counts[middle] >= rank:
            end = middle
        else:
            bucket = middle + 1
    if bucket == used - 1:
        return float(upper[used - 2])
    if bucket == 0 and upper[0] <= 0:
        return float(upper[0])
    start, count = 0.0, counts[bucket]
    if bucket > 0:
        start = upper[bucket - 1]
        count -= counts[bucket - 1]
        rank -= counts[bucket - 1]
    return float(start + (upper[bucket] - start) * (rank / count))


@helper
def _raise(
    upper: NDArray[np.float64], counts: NDArray[np.float64], used: int, forced: NDArray[np.float64], step: int
) -> None:
    """Raise counts that are less than the one before: a bucket holds all observations of smaller ones."""
    before, is_forced = counts[0], False
    for bucket in range(1, used):
        count = counts[bucket]
        if count == before:
            continue
        if _is_close(before, count):
            counts[bucket] = before
            continue
        if count < before:
            counts[bucket] = before
            if forced[0] == 0 and not is_forced:
                forced[1] = forced[2] = upper[bucket]
                forced[4] = step
            forced[1], forced[2] = min(forced[1], upper[bucket]), max(forced[2], upper[bucket])
            forced[3] = max(forced[3], before - count)
            is_forced = True
            continue
        before = count
    if is_forced:
        forced[0] += 1
        forced[5] = step


@helper
def _is_close(one: float, other: float) -> bool:
    if math.isnan(one) and math.isnan(other):
        return True
    total, difference = abs(one) + abs(other), abs(one - other)
    if one == 0 or other == 0 or total < 2.2250738585072014e-308:  # This is the least normal number.
        return difference < _SMALL_DIFFERENCE * 2.2250738585072014e-308
    return difference / min(total, 1.7976931348623157e308) < _SMALL_DIFFERENCE


@helper
def _fraction(
    lower: float, upper_end: float, upper: NDArray[np.float64], counts: NDArray[np.float64], used: int
) -> float:
    if not (math.isinf(upper[used - 1]) and upper[used - 1] > 0):
        return math.nan
    used = _coalesce(upper, counts, used)
    total = counts[used - 1]
    if total == 0 or math.isnan(lower) or math.isnan(upper_end):
        return math.nan
    if lower >= upper_end:
        return 0.0
    return float((_rank(upper_end, upper, counts, used, total) - _rank(lower, upper, counts, used, total)) / total)


@helper
def _rank(at: float, upper: NDArray[np.float64], counts: NDArray[np.float64], used: int, total: float) -> float:
    """Number of observations up to a value. In a bucket without an end, all observations count as lower."""
    rank, low = 0.0, 0.0 if upper[0] > 0 else -math.inf
    for bucket in range(used):
        if low >= at:
            return min(rank, total)
        if low < at < upper[bucket]:
            if math.isinf(low):
                return float(min(counts[bucket], total))
            return float(min(rank + (counts[bucket] - rank) * (at - low) / (upper[bucket] - low), total))
        rank, low = counts[bucket], upper[bucket]
    return total

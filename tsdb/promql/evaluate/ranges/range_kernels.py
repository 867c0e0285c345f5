"""This kernel computes the functions over ranges: one value for each window of samples.

One kernel for all functions: each is a helper, and a query calls one of them by its code.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.promql.evaluate.ranges.quantile_kernels import quantile_of
from tsdb.promql.evaluate.sum_kernels import add, mean_of, sum_of, variance_of

(
    RATE,
    INCREASE,
    DELTA,
    IRATE,
    IDELTA,
    RESETS,
    CHANGES,
    DERIV,
    PREDICT_LINEAR,
    AVG,
    SUM,
    MIN,
    MAX,
    COUNT,
    LAST,
    FIRST,
    STDDEV,
    STDVAR,
    PRESENT,
    QUANTILE,
    MAD,
    SMOOTHING,
    TS_OF_MIN,
    TS_OF_MAX,
    TS_OF_FIRST,
    TS_OF_LAST,
) = range(26)

WITH_STARTS = (RATE, INCREASE, IRATE, RESETS)  # The functions that use start timestamps.

PLAIN, ANCHORED, SMOOTHED = range(3)


@kernel
def range_kernel(
    code: int,
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    begins: NDArray[np.bool_],
    start_ms: NDArray[np.int64],
    at_ms: NDArray[np.int64],
    time_ms: NDArray[np.int64],
    range_ms: int,
    before_ms: int,
    after_ms: int,
    extension: int,
    one: NDArray[np.float64],
    two: NDArray[np.float64],
    out: Array2[np.float64],
    present: Array2[np.bool_],
) -> None:
    """Write out and present (series, steps) for the samples in (at - before, at + after] of each step.

    The samples of series i are [starts[i], starts[i + 1]). begins, start_ms: whether a reset before a sample follows
    from its start timestamp, and this timestamp, for the functions of WITH_STARTS; both are empty for others, and where
    no sample has one. at_ms: end of each range, ascending. time_ms: time of each step, without offset. extension: the
    use of samples beyond the range, PLAIN, ANCHORED or SMOOTHED. one, two: parameters at each step.
    """
    scratch = np.empty(_longest(starts) if code in (QUANTILE, MAD) else 0, np.float64)
    is_counter = code in (RATE, INCREASE)
    for series in range(starts.size - 1):
        if start_ms.size > 0 and extension == PLAIN:
            # Separate loops, because a look at `begins` for each sample took a sixth of the time of all others.
            for step in range(at_ms.size):
                low, high = _window(ts_ms, starts[series], starts[series + 1], at_ms[step] - before_ms, at_ms[step])
                present[series, step], out[series, step] = _since_starts(
                    code, ts_ms, values, begins, start_ms, low, high, at_ms[step], range_ms
                )
            continue
        end = starts[series + 1]
        low = high = starts[series]
        fall = low  # The first sample behind `low` that is less than the one before it.
        for step in range(at_ms.size):
            while high < end and ts_ms[high] <= at_ms[step] + after_ms:
                high += 1
            while low < high and ts_ms[low] <= at_ms[step] - before_ms:
                low += 1
            out[series, step] = 0.0
            if extension != PLAIN:
                first, last = _extended(ts_ms, low, high, at_ms[step] - range_ms, at_ms[step], extension == SMOOTHED)
                present[series, step] = last > first
                if last > first and code == RESETS and begins.size > 0:
                    out[series, step] = float(_resets(values, begins, first, last))
                elif last > first:
                    out[series, step] = _extended_value(
                        code, ts_ms, values, first, last, at_ms[step], range_ms, extension == SMOOTHED
                    )
                continue
            present[series, step] = high - low >= _least(code)
            if _is_instant(code) and present[series, step]:
                present[series, step] = ts_ms[high - 1] != ts_ms[high - 2]
            if not present[series, step]:
                continue
            if is_counter:
                while fall < end and (fall <= low or not values[fall] < values[fall - 1]):
                    fall += 1
            if _is_extrapolated(code):
                out[series, step] = _extrapolated(ts_ms, values, low, high, fall, at_ms[step], range_ms, code)
            else:
                out[series, step] = _value(code, ts_ms, values, low, high, time_ms[step], one[step], two[step], scratch)


@helper
def _longest(starts: NDArray[np.int64]) -> int:
    longest = 0
    for series in range(starts.size - 1):
        longest = max(longest, starts[series + 1] - starts[series])
    return longest


@helper
def _least(code: int) -> int:
    """Samples that a function needs."""
    of_two = _is_extrapolated(code) or _is_instant(code) or code in (DERIV, PREDICT_LINEAR, SMOOTHING)
    return 2 if of_two else 1


@helper
def _is_extrapolated(code: int) -> bool:
    return code in (RATE, INCREASE, DELTA)


@helper
def _is_instant(code: int) -> bool:
    """Whether the last two samples alone count."""
    return code in (IRATE, IDELTA)


@helper
def _value(
    code: int,
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    low: int,
    high: int,
    time: int,
    one: float,
    two: float,
    scratch: NDArray[np.float64],
) -> float:
    if _is_instant(code):
        return _instant(ts_ms, values, high, code == IRATE)
    if code in (RESETS, CHANGES):
        return _turns(values, low, high, code == RESETS)
    if code == DERIV:
        return _line(ts_ms, values, low, high, ts_ms[low])[0]
    if code == PREDICT_LINEAR:
        slope, intercept = _line(ts_ms, values, low, high, time)
        return slope * one + intercept
    if code == AVG:
        return mean_of(values, low, high)
    if code == SUM:
        return sum_of(values, low, high)
    if code == COUNT:
        return float(high - low)
    if code == LAST:
        return float(values[high - 1])
    if code == FIRST:
        return float(values[low])
    if code == STDVAR:
        return variance_of(values, low, high)
    if code == STDDEV:
        return math.sqrt(variance_of(values, low, high))
    if code == PRESENT:
        return 1.0
    if code in (QUANTILE, MAD):
        return _spread(values, low, high, code == MAD, one, scratch)
    if code == SMOOTHING:
        return _smoothed(values, low, high, one, two)
    if code == TS_OF_FIRST:
        return float(ts_ms[low] / 1000)
    if code == TS_OF_LAST:
        return float(ts_ms[high - 1] / 1000)
    extreme = _extreme(values, low, high, code in (MIN, TS_OF_MIN))
    if code in (MIN, MAX):
        return float(values[extreme])
    newest = extreme
    for index in range(extreme + 1, high):  # The last one of equal values counts.
        if values[index] == values[extreme]:
            newest = index
    return float(ts_ms[newest] / 1000)


@helper
def _extrapolated(
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    low: int,
    high: int,
    fall: int,
    at: int,
    range_ms: int,
    code: int,
) -> float:
    """rate, increase and delta, extrapolated to the ends of the range as Prometheus's extrapolatedRate.

    fall: the first sample of a counter behind `low` that is less than the one before it.
    """
    is_counter = code != DELTA
    change = values[high - 1] - values[low]
    if is_counter:
        for index in range(fall, high):
            if values[index] < values[index - 1]:
                change += values[index - 1]
    to_start = (ts_ms[low] - (at - range_ms)) / 1000
    to_end = (at - ts_ms[high - 1]) / 1000
    sampled = (ts_ms[high - 1] - ts_ms[low]) / 1000
    mean = sampled / (high - low - 1)
    threshold = mean * 1.1
    if to_start >= threshold:
        to_start = mean / 2
    if is_counter:
        to_zero = to_start
        if change > 0 and values[low] >= 0:
            to_zero = sampled * (values[low] / change)
        to_start = min(to_start, to_zero)
    if to_end >= threshold:
        to_end = mean / 2
    factor = (sampled + to_start + to_end) / sampled
    if code == RATE:
        factor /= range_ms / 1000
    return float(change * factor)


@helper
def _window(ts_ms: NDArray[np.int64], start: int, end: int, after: int, at: int) -> tuple[int, int]:
    """The samples of [start, end) with a time in (after, at]."""
    low = int(np.searchsorted(ts_ms[start:end], after, side="right"))
    high = int(np.searchsorted(ts_ms[start:end], at, side="right"))
    return start + low, start + high


@helper
def _is_reset(values: NDArray[np.float64], begins: NDArray[np.bool_], index: int) -> bool:
    return bool(values[index] < values[index - 1] or begins[index])


@helper
def _resets(values: NDArray[np.float64], begins: NDArray[np.bool_], low: int, high: int) -> int:
    found = 0
    for index in range(low + 1, high):
        if _is_reset(values, begins, index):
            found += 1
    return found


@helper
def _since_starts(
    code: int,
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    begins: NDArray[np.bool_],
    start_ms: NDArray[np.int64],
    low: int,
    high: int,
    at: int,
    range_ms: int,
) -> tuple[bool, float]:
    """(present, value) of a function of WITH_STARTS. A counter that starts inside of the range was 0 then, so it is not
    extrapolated to the start, and one sample is enough."""
    if code == RESETS:
        return high > low, float(_resets(values, begins, low, high))
    if code == IRATE:
        if high - low < 2:
            return False, 0.0
        newest, before = values[high - 1], values[high - 2]
        change = newest if _is_reset(values, begins, high - 1) else newest - before
        return True, float(change / ((ts_ms[high - 1] - ts_ms[high - 2]) / 1000))
    if high == low:
        return False, 0.0
    zero = start_ms[low]
    has_zero = zero != 0 and at - range_ms < zero < ts_ms[low]
    if not has_zero and high - low == 1:
        return False, 0.0
    change = values[high - 1] - values[low]
    for index in range(low + 1, high):
        if _is_reset(values, begins, index):
            change += values[index - 1]
    sampled = (ts_ms[high - 1] - ts_ms[low]) / 1000
    mean = sampled / (high - low - 1) if high - low > 1 else 0.0
    to_start = (ts_ms[low] - (at - range_ms)) / 1000
    if has_zero:
        change += values[low]
        sampled = (ts_ms[high - 1] - zero) / 1000
        to_start = 0.0
    else:
        if to_start >= mean * 1.1:
            to_start = mean / 2
        if change > 0 and values[low] >= 0:
            to_start = min(to_start, sampled * (values[low] / change))
    to_end = (at - ts_ms[high - 1]) / 1000
    if to_end >= mean * 1.1:
        to_end = mean / 2
    factor = (sampled + to_start + to_end) / sampled
    if code == RATE:
        factor /= range_ms / 1000
    return True, float(change * factor)


@helper
def _extended(
    ts_ms: NDArray[np.int64], low: int, high: int, start: int, end: int, is_smoothed: bool
) -> tuple[int, int]:
    """The samples [low, high) that count. The first is the last sample up to the start of the range.

    For `smoothed`, the last is the first sample from the end of the range on. (low, low) when all samples lie on one
    side of the range.

    """
    if high <= low:
        return low, low
    first = low
    while first < high - 1 and ts_ms[first + 1] <= start:
        first += 1
    last = high - 1
    if is_smoothed:
        last = low
        while last < high - 1 and ts_ms[last] < end:
            last += 1
    if ts_ms[last] <= start or ts_ms[first] > end:
        return low, low
    return first, last + 1


@helper
def _between(ts_ms: NDArray[np.int64], values: NDArray[np.float64], index: int, at: int, is_counter: bool) -> float:
    """The value at a time between a sample and the next. A counter that was reset between them rises from 0."""
    before, after = values[index], values[index + 1]
    if is_counter and after < before:
        before = 0.0
    return float(before + (after - before) * float(at - ts_ms[index]) / float(ts_ms[index + 1] - ts_ms[index]))


@helper
def _extended_value(
    code: int,
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    low: int,
    high: int,
    at: int,
    range_ms: int,
    is_smoothed: bool,
) -> float:
    """rate, increase, delta, resets and changes over samples that reach the ends of the range: none is extrapolated."""
    if code in (RESETS, CHANGES):
        return _turns(values, low, high, code == RESETS)
    is_counter = code != DELTA
    start, last = at - range_ms, high - 1
    left, right = values[low], values[last]
    if is_smoothed and ts_ms[low] < start:
        left = _between(ts_ms, values, low, start, is_counter)
    if is_smoothed and last > low and ts_ms[last] > at:
        right = _between(ts_ms, values, last - 1, at, is_counter)
    change = right - left
    if is_counter:
        before = left
        for index in range(low, high):
            if (ts_ms[index] <= start and index == low) or (ts_ms[index] >= at and index == last):
                continue
            if values[index] < before:
                change += before
            before = values[index]
        if right < before:
            change += before
    if code == RATE:
        change /= range_ms / 1000
    return float(change)


@helper
def _instant(ts_ms: NDArray[np.int64], values: NDArray[np.float64], high: int, is_rate: bool) -> float:
    newest, before = values[high - 1], values[high - 2]
    if not is_rate:
        return float(newest - before)
    change = newest if newest < before else newest - before
    return float(change / ((ts_ms[high - 1] - ts_ms[high - 2]) / 1000))


@helper
def _turns(values: NDArray[np.float64], low: int, high: int, falls: bool) -> float:
    """Number of falls, or of changes; two NaN in succession are not a change."""
    found = 0
    for index in range(low + 1, high):
        before, now = values[index - 1], values[index]
        if now < before or (not falls and now != before and not (math.isnan(now) and math.isnan(before))):
            found += 1
    return float(found)


@helper
def _line(
    ts_ms: NDArray[np.int64], values: NDArray[np.float64], low: int, high: int, origin: int
) -> tuple[float, float]:
    """(slope a second, value at the origin) of the least squares."""
    is_constant = True
    for index in range(low + 1, high):
        is_constant = is_constant and values[index] == values[low]
    if is_constant:
        return (math.nan, math.nan) if math.isinf(values[low]) else (0.0, values[low])
    x, y, xy, xx, x_lost, y_lost, xy_lost, xx_lost = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for index in range(low, high):
        at = (ts_ms[index] - origin) / 1000
        x, x_lost = add(at, x, x_lost)
        y, y_lost = add(values[index], y, y_lost)
        xy, xy_lost = add(at * values[index], xy, xy_lost)
        xx, xx_lost = add(at * at, xx, xx_lost)
    x, y, xy, xx = x + x_lost, y + y_lost, xy + xy_lost, xx + xx_lost
    count = float(high - low)
    slope = (xy - x * y / count) / (xx - x * x / count)
    return slope, y / count - slope * x / count


@helper
def _spread(
    values: NDArray[np.float64], low: int, high: int, is_mad: bool, q: float, scratch: NDArray[np.float64]
) -> float:
    """A quantile, or the median of the distances from the median."""
    count = high - low
    has_nan = False
    for index in range(count):
        scratch[index] = values[low + index]
        has_nan = has_nan or math.isnan(values[low + index])
    if is_mad and has_nan:
        return math.nan
    if not is_mad:
        return quantile_of(q, scratch, count)
    median = quantile_of(0.5, scratch, count)
    for index in range(count):
        scratch[index] = abs(scratch[index] - median)
    return quantile_of(0.5, scratch, count)


@helper
def _smoothed(values: NDArray[np.float64], low: int, high: int, factor: float, trend_factor: float) -> float:
    """Double exponential smoothing (Holt, 1957)."""
    before, now, trend = 0.0, values[low], values[low + 1] - values[low]
    for index in range(low + 1, high):
        if index > low + 1:
            trend = trend_factor * (now - before) + (1 - trend_factor) * trend
        before, now = now, factor * values[index] + (1 - factor) * (now + trend)
    return float(now)


@helper
def _extreme(values: NDArray[np.float64], low: int, high: int, is_min: bool) -> int:
    """Index of the least or the largest value. It is a NaN only when all values are NaN."""
    best = low
    for index in range(low + 1, high):
        value, held = values[index], values[best]
        if math.isnan(held) or (value < held if is_min else value > held):
            best = index
    return best

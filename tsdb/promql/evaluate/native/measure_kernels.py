"""These kernels read histograms: quantiles, fractions, variances, comparisons; and one trims them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.promql.evaluate.native.bucket_kernels import (
    BOUNDS,
    COUNT,
    CUSTOM,
    HINT,
    ORIGIN,
    SCHEMA,
    SUM,
    THRESHOLD,
    ZERO_COUNT,
    bound_of,
    first_positive,
    limits_of,
    reduced,
    widened,
)
from tsdb.promql.evaluate.sum_kernels import add

QUANTILE, FRACTION, VARIANCE = range(3)  # Codes of `measure_kernel`.
EQUAL, RESET = range(2)  # Codes of `compare_kernel`.
NAN_RESULT, NAN_SKEW = 1, 2  # Flags of a histogram with observations of NaN.
_RESET, _NOT_RESET = 1, 2


@kernel
def measure_kernel(
    code: int,
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    one: NDArray[np.float64],
    two: NDArray[np.float64],
    out: NDArray[np.float64],
    flags: NDArray[np.uint8],
) -> None:
    """Write the quantile `one`, the fraction between `one` and `two`, or the variance of each histogram, and what NaN
    observations did to it."""
    for row in range(out.size):
        flags[row] = 0
        if code == QUANTILE:
            out[row], flags[row] = _quantile(
                one[row], starts, keys, buckets, numbers, whole, bounds_starts, bounds, row
            )
        elif code == FRACTION:
            out[row], flags[row] = _fraction(
                one[row], two[row], starts, keys, buckets, numbers, whole, bounds_starts, bounds, row
            )
        else:
            out[row] = _variance(starts, keys, buckets, numbers, whole, bounds_starts, bounds, row)


@helper
def bucket_at(
    place: int,
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    row: int,
    split: int,
    has_zero: bool,
) -> tuple[float, float, float]:
    """(lower, upper, count) of the bucket at a place in the order of values, the zero bucket included."""
    threshold = numbers[row, THRESHOLD]
    at = starts[row] + place
    if has_zero:
        if at == split:
            return -threshold, threshold, numbers[row, ZERO_COUNT]
        if at > split:
            at -= 1
    lower, upper = limits_of(keys[at], whole[row, SCHEMA], bounds_starts, bounds, whole[row, BOUNDS])
    if upper < 0 and upper > -threshold:
        upper = -threshold
    elif lower > 0 and lower < threshold:
        lower = threshold
    return lower, upper, float(buckets[at])


@helper
def _below(value: float, lower: float, upper: float, is_linear: bool) -> float:
    """The share of a bucket below a value inside of it."""
    if is_linear:
        return (value - lower) / (upper - lower)
    low, high, at = math.log2(abs(lower)), math.log2(abs(upper)), math.log2(abs(value))
    if value > 0:
        return (at - low) / (high - low)
    return 1 - (at - high) / (low - high)


@helper
def _quantile(
    q: float,
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    row: int,
) -> tuple[float, int]:
    if q < 0:
        return -math.inf, 0
    if q > 1:
        return math.inf, 0
    total = numbers[row, COUNT]
    if total == 0 or math.isnan(q):
        return math.nan, 0
    low, high = starts[row], starts[row + 1]
    split = first_positive(keys, low, high)
    has_zero = numbers[row, ZERO_COUNT] > 0
    size = high - low + has_zero
    is_custom, has_nan = whole[row, SCHEMA] == CUSTOM, math.isnan(numbers[row, SUM])
    ascends = has_nan or q < 0.5
    rank = q * total if ascends else (1 - q) * total
    lower, upper, filled, count = 0.0, 0.0, 0.0, 0.0
    seen = size
    for step in range(size):
        place = step if ascends else size - 1 - step
        lower, upper, filled = bucket_at(
            place, starts, keys, buckets, numbers, whole, bounds_starts, bounds, row, split, has_zero
        )
        if filled == 0:
            continue
        count += filled
        if count >= rank:
            seen = step + 1
            break
    if is_custom:
        if size and lower == -math.inf:
            if upper <= 0:
                return upper, 0
            lower = 0.0
        elif size and upper == math.inf:
            return lower, 0
    elif lower < 0 and upper > 0:
        if split == low and high > split:
            lower = 0.0
        elif split == high and low < split:
            upper = 0.0
    count = min(count, total)
    if count < rank:
        return (math.nan, NAN_RESULT) if has_nan else (upper, 0)
    rank = rank - (count - filled) if ascends else count - rank
    flag = 0
    if has_nan:
        for step in range(seen, size):
            count += bucket_at(
                step, starts, keys, buckets, numbers, whole, bounds_starts, bounds, row, split, has_zero
            )[2]
        if count < total:
            flag = NAN_SKEW
    share = rank / filled
    if is_custom or (lower <= 0 and upper >= 0):
        return lower + (upper - lower) * share, flag
    from_, to = math.log2(abs(lower)), math.log2(abs(upper))
    if lower > 0:
        return 2.0 ** (from_ + (to - from_) * share), flag
    return -(2.0 ** (to + (from_ - to) * (1 - share))), flag


@helper
def _fraction(
    from_: float,
    to: float,
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    row: int,
) -> tuple[float, int]:
    total = numbers[row, COUNT]
    if total == 0 or math.isnan(from_) or math.isnan(to):
        return math.nan, 0
    if from_ >= to:
        return 0.0, 0
    low, high = starts[row], starts[row + 1]
    split = first_positive(keys, low, high)
    has_zero = numbers[row, ZERO_COUNT] > 0
    size = high - low + has_zero
    is_custom = whole[row, SCHEMA] == CUSTOM
    count, rank, rank_from, rank_to = 0.0, 0.0, 0.0, 0.0
    has_from, has_to = False, False
    seen = size
    for step in range(size):
        lower, upper, filled = bucket_at(
            step, starts, keys, buckets, numbers, whole, bounds_starts, bounds, row, split, has_zero
        )
        count += filled
        is_zero = False
        if is_custom:
            if lower == -math.inf and upper > 0:
                lower = 0.0
        elif lower <= 0 and upper >= 0:
            is_zero = True
            if split == low and high > split:
                lower = 0.0
            elif split == high and low < split:
                upper = 0.0
        if not has_from and lower >= from_:
            rank_from, has_from = rank, True
        if not has_to and lower >= to:
            rank_to, has_to = rank, True
        if not has_from and lower < from_ and upper > from_:
            rank_from, has_from = _ranked(rank, filled, from_, lower, upper, is_custom or is_zero), True
        if not has_to and lower < to and upper > to:
            rank_to, has_to = _ranked(rank, filled, to, lower, upper, is_custom or is_zero), True
        if has_from and has_to:
            seen = step + 1
            break
        rank += filled
    flag = 0
    if math.isnan(numbers[row, SUM]):
        for step in range(seen, size):
            count += bucket_at(
                step, starts, keys, buckets, numbers, whole, bounds_starts, bounds, row, split, has_zero
            )[2]
        if count < total:
            flag = NAN_SKEW
    else:
        count = total
    if not has_from or rank_from > count:
        rank_from = count
    if not has_to or rank_to > count:
        rank_to = count
    return (rank_to - rank_from) / total, flag


@helper
def _ranked(rank: float, filled: float, value: float, lower: float, upper: float, is_linear: bool) -> float:
    if is_linear and lower == -math.inf:
        return filled
    return rank + filled * _below(value, lower, upper, is_linear)


@helper
def _variance(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    row: int,
) -> float:
    """The variance of the observations, each taken as the middle of its bucket."""
    low, high = starts[row], starts[row + 1]
    split = first_positive(keys, low, high)
    has_zero = numbers[row, ZERO_COUNT] > 0
    mean = numbers[row, SUM] / numbers[row, COUNT]
    total, lost = 0.0, 0.0
    for place in range(high - low + has_zero):
        lower, upper, filled = bucket_at(
            place, starts, keys, buckets, numbers, whole, bounds_starts, bounds, row, split, has_zero
        )
        if filled == 0:
            continue
        if whole[row, SCHEMA] == CUSTOM:
            middle = (upper + lower) / 2
        elif lower <= 0 and upper >= 0:
            middle = 0.0
        else:
            middle = math.sqrt(upper * lower)
            if upper < 0:
                middle = -middle
        total, lost = add(filled * (middle - mean) * (middle - mean), total, lost)
    return float((total + lost) / numbers[row, COUNT])


@kernel
def trim_kernel(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    limits: NDArray[np.float64],
    is_upper: bool,
) -> None:
    """Remove the observations above the limit of each histogram, or those below it, in place. is_upper: those above.

    A bucket with the limit inside keeps the share that interpolation gives. Count and sum become those of the rest.
    """
    for row in range(limits.size):
        limit, is_custom = limits[row], whole[row, SCHEMA] == CUSTOM
        count, total, changes = 0.0, 0.0, False
        has_positive, has_negative = False, False
        split = first_positive(keys, starts[row], starts[row + 1])
        for place in range(starts[row + 1] - starts[row]):
            # Positive buckets first, both sides from zero on: the order in which Prometheus adds.
            positives = starts[row + 1] - split
            at = split + place if place < positives else split - 1 - (place - positives)
            filled = buckets[at]
            if filled == 0:
                continue
            is_positive = keys[at] > 0
            has_positive, has_negative = has_positive or is_positive, has_negative or not is_positive
            lower, upper = limits_of(keys[at], whole[row, SCHEMA], bounds_starts, bounds, whole[row, BOUNDS])
            kept, middle = _trimmed(lower, upper, filled, limit, is_upper, is_positive, is_custom)
            count += kept
            total += middle * kept
            if kept != filled:
                buckets[at], changes = kept, True
        zero_count = numbers[row, ZERO_COUNT]
        if zero_count > 0:
            lower = 0.0 if has_positive and not has_negative else -numbers[row, THRESHOLD]
            upper = 0.0 if has_negative and not has_positive else numbers[row, THRESHOLD]
            kept, middle = _zero_trimmed(lower, upper, zero_count, limit, is_upper)
            if kept != zero_count:
                numbers[row, ZERO_COUNT], changes = kept, True
            total += middle * kept
            count += kept
        if changes:
            numbers[row, COUNT], numbers[row, SUM] = count, total


@helper
def _zero_trimmed(lower: float, upper: float, filled: float, limit: float, is_upper: bool) -> tuple[float, float]:
    """(count, middle) of the rest of a zero bucket."""
    keeps_all = limit >= upper if is_upper else limit <= lower
    if is_upper and limit <= lower:
        return 0.0, 0.0
    if keeps_all:
        return filled, (lower + upper) / 2
    if is_upper:
        return filled * ((limit - lower) / (upper - lower)), (lower + limit) / 2
    if limit >= upper:
        return 0.0, 0.0
    return filled * ((upper - limit) / (upper - lower)), (limit + upper) / 2


@helper
def _trimmed(
    lower: float, upper: float, filled: float, limit: float, is_upper: bool, is_positive: bool, is_custom: bool
) -> tuple[float, float]:
    """(count, middle) of the rest of a bucket."""
    if upper <= limit if is_upper else lower >= limit:
        return filled, _middle(lower, upper, is_positive, is_custom)
    if not (lower < limit if is_upper else upper > limit):
        return 0.0, 0.0
    if lower == -math.inf or upper == math.inf:
        return _open_trimmed(lower, upper, filled, limit, is_upper)
    under = filled * _below(limit, lower, upper, is_custom)
    if is_upper:
        return under, _middle(lower, limit, is_positive, is_custom)
    return filled - under, _middle(limit, upper, is_positive, is_custom)


@helper
def _open_trimmed(lower: float, upper: float, filled: float, limit: float, is_upper: bool) -> tuple[float, float]:
    """(count, middle) of the rest of a bucket without a finite bound on one side."""
    if lower == -math.inf:
        if is_upper:
            if limit >= upper:
                return filled, 0.0
            if limit > 0 and upper > 0 and upper != math.inf:
                return filled * limit / upper, limit / 2
            if upper <= 0:
                return filled, limit
            return 0.0, 0.0 if math.isinf(upper) else upper
        if limit <= lower:
            return filled, 0.0
        if limit >= 0 and upper > limit and upper != math.inf:
            return filled * (1 - limit / upper), (limit + upper) / 2
        return 0.0, 0.0 if math.isinf(upper) else upper
    if is_upper or limit < lower:
        return 0.0, lower
    return filled, limit


@helper
def _middle(lower: float, upper: float, is_positive: bool, is_linear: bool) -> float:
    """The value that stands for the observations between two bounds."""
    if math.isinf(lower):
        if math.isinf(upper):
            return 0.0
        return upper / 2 if upper > 0 else upper
    if math.isinf(upper):
        return lower
    if is_linear:
        return (lower + upper) / 2
    mean = math.sqrt(abs(lower * upper))
    return mean if is_positive else -mean


@kernel
def compare_kernel(
    code: int,
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    one: NDArray[np.int64],
    other: NDArray[np.int64],
    out: NDArray[np.bool_],
) -> None:
    """Write whether the histograms `one` and `other` of each pair are equal, or whether the counter `one` was reset
    after `other`."""
    longest = 0
    for pair in range(out.size):
        longest = max(longest, starts[other[pair] + 1] - starts[other[pair]])
        longest = max(longest, starts[one[pair] + 1] - starts[one[pair]])
    old_keys, old = np.empty(longest, np.int64), np.empty(longest, np.float64)
    new_keys, new = np.empty(longest, np.int64), np.empty(longest, np.float64)
    for pair in range(out.size):
        if code == EQUAL:
            out[pair] = _is_equal(starts, keys, buckets, numbers, whole, one[pair], other[pair])
        else:
            out[pair] = _is_reset(
                starts, keys, buckets, numbers, whole, bounds_starts, bounds, one[pair], other[pair],
                new_keys, new, old_keys, old,
            )  # fmt: skip


@helper
def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@helper
def _is_equal(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    one: int,
    other: int,
) -> bool:
    size = starts[one + 1] - starts[one]
    if size != starts[other + 1] - starts[other]:
        return False
    if whole[one, SCHEMA] != whole[other, SCHEMA] or whole[one, BOUNDS] != whole[other, BOUNDS]:
        return False
    for column in range(4):
        if not _same(numbers[one, column], numbers[other, column]):
            return False
    for at in range(size):
        left, right = starts[one] + at, starts[other] + at
        if keys[left] != keys[right] or not _same(buckets[left], buckets[right]):
            return False
    return True


@helper
def _is_reset(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    one: int,
    other: int,
    new_keys: NDArray[np.int64],
    new: NDArray[np.float64],
    old_keys: NDArray[np.int64],
    old: NDArray[np.float64],
) -> bool:
    """As in Prometheus (model/histogram/float_histogram.go, `DetectReset`): a count fell, or the resolution rose."""
    if whole[one, HINT] == _RESET or whole[one, HINT] == _NOT_RESET:
        return bool(whole[one, HINT] == _RESET)
    if numbers[one, COUNT] < numbers[other, COUNT]:
        return True
    schema, old_schema = whole[one, SCHEMA], whole[other, SCHEMA]
    if schema == CUSTOM and old_schema != CUSTOM:
        return True
    if schema == CUSTOM and whole[one, BOUNDS] != whole[other, BOUNDS]:
        return _is_reset_between(starts, keys, buckets, whole, bounds_starts, bounds, one, other)
    if schema > old_schema:
        return True
    threshold = numbers[one, THRESHOLD]
    shift = 0
    if schema != CUSTOM:
        if threshold < numbers[other, THRESHOLD]:
            return True
        if old_schema == CUSTOM:
            return True
        zero_count, reached = widened(
            keys, buckets, starts[other], starts[other + 1], old_schema,
            numbers[other, ZERO_COUNT], numbers[other, THRESHOLD], threshold,
        )  # fmt: skip
        if reached != threshold or numbers[one, ZERO_COUNT] < zero_count:
            return True
        shift = old_schema - schema
    size = _read(starts, keys, buckets, other, schema, shift, threshold, old_keys, old)
    now = _read(starts, keys, buckets, one, schema, 0, threshold, new_keys, new)
    at = 0
    for place in range(size):
        while at < now and new_keys[at] < old_keys[place]:
            at += 1
        count = new[at] if at < now and new_keys[at] == old_keys[place] else 0.0
        if at < now and new_keys[at] == old_keys[place]:
            if count < old[place]:
                return True
        elif old[place] != 0:
            return True
    return False


@helper
def _read(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    row: int,
    schema: int,
    shift: int,
    threshold: float,
    out_keys: NDArray[np.int64],
    out: NDArray[np.float64],
) -> int:
    """Write the buckets outside of a zero bucket at a lower resolution. Returns their number."""
    size = 0
    for at in range(starts[row], starts[row + 1]):
        key = reduced(keys[at], shift)
        if schema != CUSTOM and bound_of(abs(key) - ORIGIN, schema) <= threshold and threshold != 0:
            continue
        if size and out_keys[size - 1] == key:
            out[size - 1] += buckets[at]
        else:
            out_keys[size], out[size] = key, buckets[at]
            size += 1
    return size


@helper
def _is_reset_between(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    one: int,
    other: int,
) -> bool:
    """Whether the count up to a bound that both have fell, between it and the bound before it."""
    left, right = whole[one, BOUNDS], whole[other, BOUNDS]
    at, old_at = starts[one], starts[other]
    place, old_place = bounds_starts[left], bounds_starts[right]
    while place <= bounds_starts[left + 1] and old_place <= bounds_starts[right + 1]:
        bound = bounds[place] if place < bounds_starts[left + 1] else math.inf
        old_bound = bounds[old_place] if old_place < bounds_starts[right + 1] else math.inf
        if bound < old_bound:
            place += 1
            continue
        if bound > old_bound:
            old_place += 1
            continue
        now, before = 0.0, 0.0
        while at < starts[one + 1]:
            if limits_of(keys[at], CUSTOM, bounds_starts, bounds, left)[1] > bound:
                break
            now += buckets[at]
            at += 1
        while old_at < starts[other + 1]:
            if limits_of(keys[old_at], CUSTOM, bounds_starts, bounds, right)[1] > bound:
                break
            before += buckets[old_at]
            old_at += 1
        if now < before:
            return True
        place += 1
        old_place += 1
    return False

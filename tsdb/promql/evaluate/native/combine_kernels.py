"""This kernel adds histograms of groups: the one operation behind sums, averages, differences and rates."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.promql.evaluate.native.bucket_kernels import (
    BOUNDS,
    CUSTOM,
    HINT,
    ORIGIN,
    SCHEMA,
    THRESHOLD,
    ZERO_COUNT,
    bound_of,
    custom_key,
    reduced,
    widened,
)
from tsdb.promql.evaluate.sum_kernels import add

# Bits of the flags of a group.
SAW_RESET, SAW_NOT_RESET, COLLISION, RECONCILED_ADDITION, RECONCILED_SUBTRACTION = 1, 2, 4, 8, 16
_UNKNOWN, _RESET, _NOT_RESET, _GAUGE = range(4)


@kernel
def combine_kernel(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    group_starts: NDArray[np.int64],
    members: NDArray[np.int64],
    weights: NDArray[np.float64],
    target_bounds: NDArray[np.int64],
    schema_max: NDArray[np.int64],
    divisors: NDArray[np.float64],
    out_starts: NDArray[np.int64],
    out_keys: NDArray[np.int64],
    out_buckets: NDArray[np.float64],
    out_sizes: NDArray[np.int64],
    out_numbers: Array2[np.float64],
    out_whole: Array2[np.int64],
    flags: NDArray[np.int64],
) -> None:
    """Write the sum of the members of each group, times their weights, over the divisor of the group.

    Members are added in their order, each to the sum before it, as Prometheus adds two histograms: zero buckets first,
    then at the lower resolution of both. target_bounds: the bounds that all members of a group with custom ones share.
    schema_max: no schema of a result is above it. A weight of 0 only brings its schema and bounds. Group g has room in
    [out_starts[g], out_starts[g + 1]); out_sizes gets its number of buckets, or -1 - m where member m is the first one
    whose schema has no common one with those before it.
    """
    longest = 0
    for group in range(group_starts.size - 1):
        longest = max(longest, out_starts[group + 1] - out_starts[group])
    # Buckets of the sum and what rounding lost of them, and space to merge others in.
    sum_keys, sums, lost = np.empty(longest, np.int64), np.empty(longest, np.float64), np.empty(longest, np.float64)
    new_keys, news, new_lost = np.empty(longest, np.int64), np.empty(longest, np.float64), np.empty(longest, np.float64)
    total, total_lost = np.empty(4, np.float64), np.empty(3, np.float64)
    for group in range(group_starts.size - 1):
        for attempt in range(2):
            size, schema, bounds_of, hint, seen = 0, 0, -1, 0, 0
            failed = -1
            scale = 1.0 / divisors[group] if attempt == 1 else 1.0
            for place in range(group_starts[group], group_starts[group + 1]):
                member, weight = members[place], weights[place] * scale
                low, high = starts[member], starts[member + 1]
                own_schema, own_hint = whole[member, SCHEMA], whole[member, HINT]
                seen |= SAW_RESET if own_hint == _RESET else (SAW_NOT_RESET if own_hint == _NOT_RESET else 0)
                if place == group_starts[group]:
                    schema, bounds_of, hint = own_schema, whole[member, BOUNDS], own_hint
                    for column in range(3):
                        total[column], total_lost[column] = numbers[member, column] * weight, 0.0
                    total[THRESHOLD] = numbers[member, THRESHOLD]
                    for at in range(low, high):
                        key = keys[at]
                        if schema == CUSTOM:
                            key = custom_key(key, bounds_starts, bounds, bounds_of, target_bounds[group])
                        if size and sum_keys[size - 1] == key:
                            sums[size - 1], lost[size - 1] = add(buckets[at] * weight, sums[size - 1], lost[size - 1])
                        else:
                            sum_keys[size], sums[size], lost[size] = key, buckets[at] * weight, 0.0
                            size += 1
                    if schema != CUSTOM and schema_max[group] < schema:
                        size = _reduce(sum_keys, sums, lost, size, schema - schema_max[group])
                        schema = schema_max[group]
                    continue
                if (own_schema == CUSTOM) != (schema == CUSTOM):
                    failed = place - group_starts[group]
                    break
                if hint != own_hint and hint != _GAUGE:
                    if own_hint == _GAUGE:
                        hint = _GAUGE
                    elif hint != _UNKNOWN:
                        if own_hint != _UNKNOWN:
                            seen |= COLLISION
                        hint = _UNKNOWN
                if schema == CUSTOM and whole[member, BOUNDS] != bounds_of:
                    seen |= RECONCILED_SUBTRACTION if weight < 0 or weights[place] == 0 else RECONCILED_ADDITION
                    bounds_of = target_bounds[group]
                if schema != CUSTOM and weights[place] != 0:
                    zero_count, threshold = numbers[member, ZERO_COUNT], numbers[member, THRESHOLD]
                    while threshold != total[THRESHOLD]:
                        if total[THRESHOLD] > threshold:
                            zero_count, threshold = widened(
                                keys, buckets, low, high, own_schema,
                                numbers[member, ZERO_COUNT], numbers[member, THRESHOLD], total[THRESHOLD],
                            )  # fmt: skip
                        if threshold > total[THRESHOLD]:
                            total[ZERO_COUNT], total[THRESHOLD] = widened(
                                sum_keys, sums, 0, size, schema, total[ZERO_COUNT], total[THRESHOLD], threshold
                            )
                            size = _outside(sum_keys, sums, lost, size, schema, total[THRESHOLD])
                        if threshold != threshold or total[THRESHOLD] != total[THRESHOLD]:
                            break
                    total[ZERO_COUNT], total_lost[ZERO_COUNT] = add(
                        zero_count * weight, total[ZERO_COUNT], total_lost[ZERO_COUNT]
                    )
                shift = 0
                if schema != CUSTOM:
                    if own_schema < schema:
                        size = _reduce(sum_keys, sums, lost, size, schema - own_schema)
                        schema = own_schema
                    shift = own_schema - schema
                if weights[place] == 0:
                    continue
                for column in range(2):
                    total[column], total_lost[column] = add(
                        numbers[member, column] * weight, total[column], total_lost[column]
                    )
                merged = 0  # Buckets in the merged arrays.
                at_sum = 0
                for at in range(low, high):
                    if schema == CUSTOM:
                        key = custom_key(keys[at], bounds_starts, bounds, whole[member, BOUNDS], target_bounds[group])
                    else:
                        key = reduced(keys[at], shift)
                        if bound_of(abs(key) - ORIGIN, schema) <= total[THRESHOLD]:
                            continue
                    while at_sum < size and sum_keys[at_sum] <= key:
                        new_keys[merged], news[merged], new_lost[merged] = sum_keys[at_sum], sums[at_sum], lost[at_sum]
                        merged += 1
                        at_sum += 1
                    if merged and new_keys[merged - 1] == key:
                        last = merged - 1
                        news[last], new_lost[last] = add(buckets[at] * weight, news[last], new_lost[last])
                    else:
                        new_keys[merged], news[merged], new_lost[merged] = key, buckets[at] * weight, 0.0
                        merged += 1
                while at_sum < size:
                    new_keys[merged], news[merged], new_lost[merged] = sum_keys[at_sum], sums[at_sum], lost[at_sum]
                    merged += 1
                    at_sum += 1
                size = merged
                sum_keys, new_keys = new_keys, sum_keys
                sums, news = news, sums
                lost, new_lost = new_lost, lost
            flags[group] = seen
            if failed >= 0:
                out_sizes[group] = -1 - failed
                break
            divisor = divisors[group] if attempt == 0 else 1.0
            has_overflow = False
            written = out_starts[group]
            for at in range(size):
                value = sums[at] / divisor + lost[at] / divisor
                has_overflow = has_overflow or math.isinf(value)
                if value != 0:
                    out_keys[written], out_buckets[written] = sum_keys[at], value
                    written += 1
            out_sizes[group] = written - out_starts[group]
            for column in range(3):
                value = total[column] / divisor + total_lost[column] / divisor
                has_overflow = has_overflow or math.isinf(value)
                out_numbers[group, column] = value
            out_numbers[group, THRESHOLD] = total[THRESHOLD]
            out_whole[group, SCHEMA], out_whole[group, HINT] = schema, hint
            out_whole[group, BOUNDS] = target_bounds[group] if schema == CUSTOM else -1
            # A mean whose sum is too large for a float is the sum of shares.
            if divisor == 1.0 or not has_overflow:
                break


@helper
def _reduce(
    keys: NDArray[np.int64], sums: NDArray[np.float64], lost: NDArray[np.float64], size: int, shift: int
) -> int:
    """Join buckets for a schema that is lower by `shift`. Returns their number."""
    kept = 0
    for at in range(size):
        key = reduced(keys[at], shift)
        if kept and keys[kept - 1] == key:
            sums[kept - 1], lost[kept - 1] = add(sums[at], sums[kept - 1], lost[kept - 1])
            sums[kept - 1], lost[kept - 1] = add(lost[at], sums[kept - 1], lost[kept - 1])
        else:
            keys[kept], sums[kept], lost[kept] = key, sums[at], lost[at]
            kept += 1
    return kept


@helper
def _outside(
    keys: NDArray[np.int64],
    sums: NDArray[np.float64],
    lost: NDArray[np.float64],
    size: int,
    schema: int,
    threshold: float,
) -> int:
    """Remove the buckets inside of the zero bucket. Returns the number of those that stay."""
    kept = 0
    for at in range(size):
        if bound_of(abs(keys[at]) - ORIGIN - 1, schema) >= threshold:
            keys[kept], sums[kept], lost[kept] = keys[at], sums[at], lost[at]
            kept += 1
    return kept

"""Residuals: removes the regular part of a column's integers, which leaves unsigned integers to pack.

The regular part is the common divisor of all differences, then the lowest level, the value before, the slope before,
or the smallest rise. Ways: docs/formats/columns.md, "Residuals". All arithmetic is modulo 2^64, so every way is exact
for every int64; a way that does not suit only costs bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import bit_length, shift_right, trailing_zeros, unzigzag, zigzag
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64, store_i64

LEVEL = 0  # steps above the lowest
DELTA = 1  # change from the value before, zigzag
SLOPE = 2  # change of the change (delta of delta), zigzag
XOR = 3  # Bits that differ from the value before, shifted right by the number of zeros at the end of all.
RISE = 4  # Change from the value before, minus the smallest change.
LEVEL_AROUND = 5  # Steps from a middle value, zigzag.
RISE_AROUND = 6  # Change minus a middle change, zigzag.
WAYS = 7

MIDDLE_OF = 31  # Number of sampled values for a median, which is near enough to the median of all.


@helper
def residuals_in(way: int, n: int) -> int:
    """Residuals that n >= 1 values leave: the first value is in the header unless the way measures from a level."""
    return n if way in (LEVEL, LEVEL_AROUND) else n - 1


@helper
def has_middle(way: int) -> bool:
    """Whether a second number is in the header: the middle change, or the shift of XOR."""
    return way in (RISE, RISE_AROUND, XOR)


@helper
def common_step(integers: NDArray[np.int64], n: int, powers_only: bool) -> int:
    """Greatest common divisor of all differences, at least 1. When differences may wrap, only its power of two."""
    bits = 0
    for index in range(1, n):
        bits |= integers[index] - integers[index - 1]
    zeros = int(trailing_zeros(bits))
    if bits == 0 or zeros > 62:
        return 1
    if powers_only:
        return 1 << zeros
    step = 0
    for index in range(1, n):
        step = _gcd(step, abs(integers[index] - integers[index - 1]) >> zeros)
        if step == 1:
            break
    return step << zeros


@helper
def _gcd(left: int, right: int) -> int:
    while right:
        left, right = right, left % right
    return left


@helper
def divide_by_step(integers: NDArray[np.int64], n: int, step: int) -> None:
    """Replace integers by their distance from the first in steps. Exact division: a shift and a modular inverse."""
    zeros = int(trailing_zeros(step))
    odd = step >> zeros
    inverse = odd  # Newton's iteration doubles the right bits: 3, 6, 12, 24, 48, 96.
    for _ in range(5):
        inverse *= 2 - odd * inverse
    first = integers[0]
    for index in range(n):
        integers[index] = ((integers[index] - first) >> zeros) * inverse


@helper
def xor_zeros(integers: NDArray[np.int64], n: int) -> int:
    """Number of zero bits at the end of all integers[index] ^ integers[index - 1], at most 63."""
    bits = 0
    for index in range(1, n):
        bits |= integers[index] ^ integers[index - 1]
    return min(int(trailing_zeros(bits)), 63)


@helper
def cheapest_way(steps: NDArray[np.int64], n: int) -> tuple[int, int, int]:
    """(way, lowest level, smallest rise) with the fewest bits over all residuals, an estimate of the packed size."""
    lowest, least_rise = steps[0], steps[1] - steps[0]
    for index in range(1, n):
        lowest = min(lowest, steps[index])
        least_rise = min(least_rise, steps[index] - steps[index - 1])
    level = delta = slope = rise = last = 0
    for index in range(1, n):
        change = steps[index] - steps[index - 1]
        level += bit_length(steps[index] - lowest)
        delta += bit_length(zigzag(change))
        slope += bit_length(zigzag(change - last))
        rise += bit_length(change - least_rise)
        last = change
    best, way = delta, DELTA
    if slope < best:
        best, way = slope, SLOPE
    if rise + 16 < best:
        best, way = rise + 16, RISE
    if level < best:
        way = LEVEL
    return way, lowest, least_rise


@helper
def lowest_level(steps: NDArray[np.int64], n: int) -> int:
    lowest = steps[0]
    for index in range(1, n):
        lowest = min(lowest, steps[index])
    return int(lowest)


@helper
def middle_level(steps: NDArray[np.int64], n: int, scratch: NDArray[np.int64]) -> int:
    """Median of a few levels. scratch: memory for them."""
    count = min(n, MIDDLE_OF)
    for sample in range(count):
        scratch[sample] = steps[sample * n // count]
    return _median(scratch, count)


@helper
def middle_rise(steps: NDArray[np.int64], n: int, scratch: NDArray[np.int64]) -> int:
    """Median of a few changes. scratch: memory for them."""
    count = min(n - 1, MIDDLE_OF)
    for sample in range(count):
        at = 1 + sample * (n - 1) // count
        scratch[sample] = steps[at] - steps[at - 1]
    return _median(scratch, count)


@helper
def _median(scratch: NDArray[np.int64], count: int) -> int:
    for index in range(1, count):
        value = scratch[index]
        while index > 0 and scratch[index - 1] > value:
            scratch[index] = scratch[index - 1]
            index -= 1
        scratch[index] = value
    return int(scratch[count // 2])


@helper
def take_residuals(steps: NDArray[np.int64], n: int, way: int, middle: int, out: NDArray[np.int64]) -> None:
    """Compute the residuals of all ways but XOR. middle: the number from which LEVEL, RISE and their _AROUND forms
    measure."""
    if way == LEVEL:
        for index in range(n):
            out[index] = steps[index] - middle
    elif way == LEVEL_AROUND:
        for index in range(n):
            out[index] = zigzag(steps[index] - middle)
    elif way == DELTA:
        for index in range(1, n):
            out[index - 1] = zigzag(steps[index] - steps[index - 1])
    elif way == RISE:
        for index in range(1, n):
            out[index - 1] = steps[index] - steps[index - 1] - middle
    elif way == RISE_AROUND:
        for index in range(1, n):
            out[index - 1] = zigzag(steps[index] - steps[index - 1] - middle)
    else:
        last = 0
        for index in range(1, n):
            change = steps[index] - steps[index - 1]
            out[index - 1] = zigzag(change - last)
            last = change


@helper
def take_xor(integers: NDArray[np.int64], n: int, zeros: int, out: NDArray[np.int64]) -> None:
    for index in range(1, n):
        out[index - 1] = shift_right(integers[index] ^ integers[index - 1], zeros)


@helper
def put_back(target: NDArray[np.int64], at: int, n: int, way: int, first: int, middle: int, step: int) -> None:
    """Replace the residuals in target[at + n - residuals_in(way, n) : at + n] by their integers, in place."""
    if way == LEVEL:
        for index in range(at, at + n):
            store_i64(target, index * 8, first + load_i64(target, index * 8) * step)
    elif way == LEVEL_AROUND:
        for index in range(at, at + n):
            store_i64(target, index * 8, first + unzigzag(load_i64(target, index * 8)) * step)
    elif way == RISE:
        value = first
        store_i64(target, at * 8, value)
        for index in range(at + 1, at + n):
            value += (load_i64(target, index * 8) + middle) * step
            store_i64(target, index * 8, value)
    elif way == XOR:
        value = first
        store_i64(target, at * 8, value)
        for index in range(at + 1, at + n):
            value ^= load_i64(target, index * 8) << middle
            store_i64(target, index * 8, value)
    else:
        _put_back_changes(target, at, n, way, first, middle, step)


@helper
def _put_back_changes(target: NDArray[np.int64], at: int, n: int, way: int, first: int, middle: int, step: int) -> None:
    value = first
    store_i64(target, at * 8, value)
    if way == SLOPE:
        change = 0
        for index in range(at + 1, at + n):
            change += unzigzag(load_i64(target, index * 8)) * step
            value += change
            store_i64(target, index * 8, value)
        return
    for index in range(at + 1, at + n):
        value += (unzigzag(load_i64(target, index * 8)) + middle) * step
        store_i64(target, index * 8, value)

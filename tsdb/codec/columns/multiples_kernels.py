"""Multiples: columns whose values are whole multiples of one base, up to the rounding of their computation.

Examples are averages over 7 hosts, sensor counts times a volt per count, and a ratio plus a constant. The multiples are
small integers, and the remainders are a few units in the last place. Dense only. Layout: docs/formats/columns.md,
"Multiples". After pcodec's float-mult mode (Loncaric 2025).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import ordered
from tsdb.codec.columns.dense_frame_kernels import read_headed_frame, write_dense_frame
from tsdb.codec.columns.scale_kernels import EXACT_MAX, printed
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import as_int64, load_i64, store_i64

MULTIPLES = 180  # First byte. 8 bytes of the base, a headed frame of multiples and a headed frame of remainders follow.
SAMPLED = 24
# Euclid's algorithm multiplies the rounding of the values by the quotient: 2^-52 x 2^21 stays below ZERO.
SMALLEST_BASE = 2.0**-21  # A share of the largest value.
ZERO = 2.0**-28  # Share of the largest value. A remainder this small is rounding.
# Share of a base: a multiple may differ this much from a whole number while the base is still being refined.
NEAR = 0.05
AGREEING = 20  # Values among SAMPLED.


@helper
def find_base(values: NDArray[np.float64], start: int, n: int) -> float:
    """The base that most sampled values are multiples of; 0 without such a base."""
    sizes = np.empty(SAMPLED)
    count = 0
    for sample in range(SAMPLED):
        size = abs(values[start + sample * n // SAMPLED])
        if 0.0 < size < EXACT_MAX * EXACT_MAX:
            sizes[count] = size
            count += 1
    if count < AGREEING:
        return 0.0
    _sort(sizes, count)
    largest = sizes[count - 1]
    base = sizes[0]
    for sample in range(1, count):
        base = _common_measure(sizes[sample], base, largest * ZERO)
        if base < largest * SMALLEST_BASE:
            return 0.0
        # Each step of Euclid's algorithm multiplied the error; dividing a large multiple removes it.
        base = sizes[sample] / np.rint(sizes[sample] / base)
    return _refined(base, sizes[:count])


@helper
def _sort(sizes: NDArray[np.float64], count: int) -> None:
    for at in range(1, count):
        size, to = sizes[at], at
        while to > 0 and sizes[to - 1] > size:
            sizes[to] = sizes[to - 1]
            to -= 1
        sizes[to] = size


@helper
def _common_measure(left: float, right: float, zero: float) -> float:
    """Euclid's algorithm on reals; remainders up to `zero` count as 0."""
    while right > zero:
        left, right = right, abs(left - np.rint(left / right) * right)
    return left


@helper
def _refined(base: float, sizes: NDArray[np.float64]) -> float:
    """The base made exact by ever larger multiples of it, then rounded if that leaves no more; 0 if too few agree."""
    agreeing = 0
    for size in sizes:
        multiple = np.rint(size / base)
        if multiple > 0.0 and abs(size / base - multiple) < NEAR:
            base = size / multiple
            agreeing += 1
    if agreeing < AGREEING:
        return 0.0
    best, least = base, _left_over(base, sizes)
    for spelling in (printed(base), 1.0 / np.rint(1.0 / base) if base < 1.0 else np.rint(base)):
        left = _left_over(spelling, sizes)
        if left <= least:
            best, least = spelling, left
    return best


@helper
def _left_over(base: float, sizes: NDArray[np.float64]) -> float:
    left = 0.0
    for size in sizes:
        left += abs(size - np.rint(size / base) * base)
    return left


@helper
def write_multiples(
    values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], bound: int, scratch: NDArray[np.int64]
) -> int:
    """Write values[start : start + n], n >= 2, to out if that takes less than bound bytes. Returns the bytes, otherwise
    -1."""
    base = find_base(values, start, n) if n >= SAMPLED else 0.0
    if base == 0.0 or bound < 16:
        return -1
    multiples, left = scratch[:n], scratch[n : 2 * n]
    for index in range(n):
        multiple = np.rint(values[start + index] / base)
        if not abs(multiple) < EXACT_MAX:
            multiple = 0.0
        multiples[index] = int(multiple)
        left[index] = ordered(load_i64(values, (start + index) * 8)) - _nearest(int(multiple), base)
    out[0] = MULTIPLES
    store_i64(out, 1, np.float64(base).view(np.int64))
    pos = write_dense_frame(multiples, n, False, scratch[2 * n : 3 * n], scratch[3 * n : 4 * n], out, 9, bound)
    if pos < 0:
        return -1
    return write_dense_frame(left, n, True, scratch[2 * n : 3 * n], scratch[3 * n : 4 * n], out, pos, bound)


@helper
def _nearest(multiple: int, base: float) -> int:
    """The order-preserving integer of multiple * base."""
    return ordered(int(np.float64(float(multiple) * base).view(np.int64)))


@helper
def read_multiples(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.float64], at: int) -> int:
    """Fill out[at : at + n] from the bytes after the first one. Returns the new position, or -1."""
    if end - pos < 8:
        return -1
    base = np.int64(load_i64(data, pos)).view(np.float64)
    if not 0.0 < base < np.inf:
        return -1
    pos = read_headed_frame(data, pos + 8, end, n, as_int64(out), at)
    if pos < 0:
        return pos
    left = np.empty(n, np.int64)
    pos = read_headed_frame(data, pos, end, n, left, 0)
    if pos < 0:
        return pos
    for index in range(n):
        nearest = _nearest(load_i64(out, (at + index) * 8), base)
        store_i64(out, (at + index) * 8, ordered(nearest + left[index]))
    return pos

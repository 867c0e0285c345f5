"""Scales: the exact maps between the float64 values of a column and the integers that are packed in their place.

A map is used for a value only if its integer, put back through `to_bits`, gives the same 64 bits: -0.0, NaN payloads
and everything that merely looks decimal fail that proof and are kept as exceptions. Codes: docs/formats/columns.md,
"Scales". Only multiplication, division and rounding of IEEE doubles are used, so every machine decodes the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import ordered
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64, store_i64

# Powers up to 10^22 are exact doubles. TENTHS are the rounded factors of programs that multiply by 0.001.
TENS = np.array([float(f"1e{e}") for e in range(23)])
TENTHS = np.array([float(f"1e-{e}") for e in range(23)])
DECADE_FIRST = -8
DECADES = np.array([float(f"1e{e}") for e in range(DECADE_FIRST, 16)])

# scale codes
DIVIDED = 0  # 0..22: m / 10^code
MULTIPLIED = 22  # 23..44: m * 10^-(code - 22)
DIVIDED_TWICE = 44  # 45..48: m / 10^a / 10^a, a = code - 44
FLOAT_BITS = 49  # the order-preserving integer of the float itself
RATIO = 50  # m / 3600: rates and averages over whole seconds or counts that divide an hour
RATIO_PRINTED = 51  # The same ratio, rounded to 15 significant digits like printf("%.15g").
SCALES = 52

RATIO_BASE = 3600.0
EXACT_MAX = 9007199254740992.0  # 2^53: above it an int64 no longer names one double
NO_SCALE = -1


@helper
def to_float(scale: int, value: int) -> float:
    """The float64 of an integer. Defined for every int64 and every scale below SCALES, except FLOAT_BITS."""
    number = float(value)
    if scale <= MULTIPLIED:
        return float(number / TENS[scale])
    if scale <= DIVIDED_TWICE:
        return float(number * TENTHS[scale - MULTIPLIED])
    if scale < FLOAT_BITS:
        return float(number / TENS[scale - DIVIDED_TWICE] / TENS[scale - DIVIDED_TWICE])
    if scale == RATIO:
        return float(number / RATIO_BASE)
    return printed(number / RATIO_BASE)


@helper
def printed(number: float) -> float:
    """`number`, rounded to 15 significant digits. Below 1e-7 and from 1e15 on it stays unchanged."""
    size = abs(number)
    if not (size < 1e15) or size < 1e-7:
        return number
    # floor(log10) from the binary exponent is right or one too small: 1233 / 4096 is just below log10(2).
    exponent = (int(np.float64(size).view(np.int64)) >> 52) - 1023
    decade = (exponent * 1233) >> 12
    decade += size >= DECADES[decade + 1 - DECADE_FIRST]
    power = TENS[14 - decade]
    return float(np.rint(number * power) / power)


@helper
def unscaled(scale: int, number: float) -> float:
    if scale <= MULTIPLIED:
        return float(number * TENS[scale])
    if scale <= DIVIDED_TWICE:
        return float(number * TENS[scale - MULTIPLIED])
    if scale < FLOAT_BITS:
        return float(number * TENS[2 * (scale - DIVIDED_TWICE)])
    return float(number * RATIO_BASE)


@helper
def same_bits(left: float, right: float) -> bool:
    # Equal floats have equal bits but for the zeros; a NaN equals nothing.
    return left == right and (left != 0.0 or np.signbit(left) == np.signbit(right))


@helper
def proves(scale: int, number: float) -> bool:
    """Whether the scale gives back exactly the bits of `number`."""
    guess = np.rint(unscaled(scale, number))
    return abs(guess) < EXACT_MAX and same_bits(to_float(scale, int(guess)), number)


@helper
def integer_of(scale: int, number: float) -> int:
    """The integer of a number that the scale proves."""
    return int(np.rint(unscaled(scale, number)))


@helper
def float_integers(values: NDArray[np.float64], start: int, n: int, integers: NDArray[np.int64]) -> None:
    for index in range(n):
        integers[index] = ordered(load_i64(values, (start + index) * 8))


@helper
def put_floats(target: NDArray[np.float64], at: int, n: int, scale: int) -> None:
    """Replace the integers in target[at : at + n] by their floats, in place."""
    if scale == FLOAT_BITS:
        for index in range(at, at + n):
            store_i64(target, index * 8, ordered(load_i64(target, index * 8)))
    elif scale == DIVIDED:
        for index in range(at, at + n):
            target[index] = float(load_i64(target, index * 8))
    elif scale <= MULTIPLIED:
        power = TENS[scale]
        for index in range(at, at + n):
            target[index] = float(load_i64(target, index * 8)) / power
    else:
        for index in range(at, at + n):
            target[index] = to_float(scale, load_i64(target, index * 8))

"""Scales: the exact maps between the float64 values of a column and the integers that are packed in their place.

A map is used for a value only if the inverse map gives the same 64 bits again: -0.0, NaN payloads and everything that
only looks decimal fail that proof and are kept as exceptions. Codes: docs/formats/columns.md, "Scales". Only
multiplication, division and rounding of IEEE doubles are used, so every machine decodes the same bits.

A scale is chosen by trying it on a few values and then proving it for all. Where some fail, more digits are tried.
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
MULTIPLIED = 22  # Codes 23 to 44 mean m * 10^-(code - 22).
DIVIDED_TWICE = 44  # Codes 45 to 48 mean m / 10^a / 10^a with a = code - 44.
FLOAT_BITS = 49  # The order-preserving integer of the float itself.
RATIO = 50  # Means m / 3600, for rates and averages over whole seconds or counts that divide an hour.
RATIO_PRINTED = 51  # The same ratio, rounded to 15 significant digits like printf("%.15g").
SCALES = 52

RATIO_BASE = 3600.0
EXACT_MAX = 9007199254740992.0  # 2^53. Above it an int64 no longer stands for exactly one double.
NO_SCALE = -1

SAMPLED = 8  # The number of values on which a scale is tried, before it is tried on the whole column.
NANOSECONDS = 9  # Programs rarely divide by a higher power of ten, even where such a division gives the bits back.
# Decimals that people write and counters have. With more decimals, a ratio may need far smaller integers.
PLAIN_DIGITS = 4


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


@helper
def decimal_scale(number: float) -> int:
    """Smallest decimal scale that proves `number`; NO_SCALE if none does."""
    return _smallest_from(DIVIDED, MULTIPLIED, number)


@helper
def integers_of(
    values: NDArray[np.float64], start: int, n: int, integers: NDArray[np.int64], exceptions: NDArray[np.int64]
) -> tuple[int, int]:
    """Fill integers[:n] under the scale that fits best; (scale, exceptions found). FLOAT_BITS always fits."""
    scale, found = _try(values, start, n, DIVIDED, MULTIPLIED, integers, exceptions)
    if scale != NO_SCALE and found == 0 and scale <= PLAIN_DIGITS:
        return scale, found
    # The values have many digits, or no division gives them: a program multiplied, divided twice, or averaged over
    # seconds.
    for family in range(4):
        first, last = _family(family)
        if scale != NO_SCALE and found == 0 and scale <= NANOSECONDS and first < RATIO:
            break
        if _sampled_scale(values, start, n, first, last) == NO_SCALE:
            continue
        other, other_found = _try(values, start, n, first, last, integers, exceptions)
        fewer = other_found < found or (other_found == found and scale > PLAIN_DIGITS)
        if other != NO_SCALE and (scale == NO_SCALE or fewer):
            return other, other_found
        if scale != NO_SCALE:
            found = _fill(values, start, n, scale, integers, exceptions)
    if scale == NO_SCALE:
        float_integers(values, start, n, integers)
        return FLOAT_BITS, 0
    return scale, found


@helper
def _smallest_from(scale: int, last: int, number: float) -> int:
    """First scale in [scale, last] that proves `number`; NO_SCALE if none does."""
    for candidate in range(scale, last + 1):
        if proves(candidate, number):
            return candidate
    return NO_SCALE


@helper
def _sampled_scale(values: NDArray[np.float64], start: int, n: int, first: int, last: int) -> int:
    """Smallest scale in [first, last] on which all but one of a few values agree; NO_SCALE when no scale fits."""
    count = min(n, SAMPLED)
    most = second = first
    for sample in range(count):
        number = values[start + sample * n // count]
        # NaN and infinity are exceptions under any scale, so they are left out.
        if not abs(number) < np.inf or proves(second, number):
            continue
        needed = _smallest_from(second + 1, last, number)
        needed = needed if needed != NO_SCALE else last + 1
        most, second = max(most, needed), max(second, min(most, needed))
        if second > last:
            return NO_SCALE
    agreed = second if count > 2 else most
    return agreed if agreed <= last else NO_SCALE


@helper
def _fill(
    values: NDArray[np.float64],
    start: int,
    n: int,
    scale: int,
    integers: NDArray[np.int64],
    exceptions: NDArray[np.int64],
) -> int:
    """Fill the integers of all values and the indexes of the exceptions; the integer of an exception repeats the one
    before. Returns the number of exceptions.

    Stops at the exception after number `n // 16 + 1`, and returns `n // 16 + 2`.

    """
    found = 0
    previous = 0
    for index in range(n):
        number = values[start + index]
        guess = np.rint(unscaled(scale, number))
        # Compare as floats first, because a NaN or an infinity has no int64.
        if abs(guess) < EXACT_MAX and same_bits(to_float(scale, int(guess)), number):
            previous = int(guess)
        else:
            if found > n // 16:
                return found + 1
            exceptions[found] = index
            found += 1
        integers[index] = previous
    if found and exceptions[0] == 0:
        _repeat_first(integers, exceptions, found)
    return found


@helper
def _repeat_first(integers: NDArray[np.int64], exceptions: NDArray[np.int64], found: int) -> None:
    """Exceptions at the start have no value before them: they take the one after."""
    leading = 0
    while leading < found and exceptions[leading] == leading:
        leading += 1
    for index in range(leading):
        integers[index] = integers[leading]


@helper
def _more_digits(
    values: NDArray[np.float64], start: int, scale: int, last: int, exceptions: NDArray[np.int64], found: int
) -> int:
    """The least scale above `scale` that one of the exceptions would need; NO_SCALE if none can be helped."""
    least = last + 1
    for nth in range(found):
        needed = _smallest_from(scale + 1, least - 1, values[start + exceptions[nth]])
        least = needed if needed != NO_SCALE else least
    return least if least <= last else NO_SCALE


@helper
def _try(
    values: NDArray[np.float64],
    start: int,
    n: int,
    first: int,
    last: int,
    integers: NDArray[np.int64],
    exceptions: NDArray[np.int64],
) -> tuple[int, int]:
    scale = _sampled_scale(values, start, n, first, last)
    while scale != NO_SCALE:
        found = _fill(values, start, n, scale, integers, exceptions)
        if found == 0:
            return scale, found
        bearable = found <= n // 16 + 1
        higher = _more_digits(values, start, scale, last, exceptions, min(found, n // 16 + 1))
        if higher == NO_SCALE:
            return (scale, found) if bearable else (NO_SCALE, 0)
        # A digit costs all values 3.3 bits, an exception costs about 80.
        if bearable and (higher - scale) * n * 10 > found * 240:
            return scale, found
        scale = higher
    return NO_SCALE, 0


@helper
def _family(family: int) -> tuple[int, int]:
    if family == 0:
        return RATIO_PRINTED, RATIO_PRINTED
    if family == 1:
        return RATIO, RATIO
    if family == 2:
        return int(MULTIPLIED + 1), DIVIDED_TWICE
    return int(DIVIDED_TWICE + 1), int(FLOAT_BITS - 1)

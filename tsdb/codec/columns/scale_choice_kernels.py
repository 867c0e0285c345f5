"""Chooses a scale: tries it on a few values, then proves it for all. Where some fail, more digits are tried."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.scale_kernels import (
    DIVIDED,
    DIVIDED_TWICE,
    EXACT_MAX,
    FLOAT_BITS,
    MULTIPLIED,
    NO_SCALE,
    RATIO,
    RATIO_PRINTED,
    float_integers,
    proves,
    same_bits,
    to_float,
    unscaled,
)
from tsdb.codec.jit import helper

SAMPLED = 8  # The number of values on which a scale is tried, before it is tried on the whole column.
NANOSECONDS = 9  # programs rarely divide by a higher power of ten, even where a division by it gives the bits back
PLAIN_DIGITS = 4  # decimals that people write and counters have; with more, a ratio may need far smaller integers


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
    # Many digits, or values a division does not give: a program multiplied, divided twice, or averaged over seconds.
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
        # Compared as floats first: a NaN or an infinity has no int64.
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

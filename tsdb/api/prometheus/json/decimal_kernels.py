"""Helpers that write a float64 as the shortest decimal text that reads back to it, as Go's strconv does.

Schubfach (Raffaello Giulietti, "The Schubfach way to render doubles", 2020) over powers of ten of 128 bits. Twin: repr.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import leading_zeros, multiply_high, trailing_zeros
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_u64, store_u64

TEXT_BYTES_MAX = 26  # `-0.00000` and 17 digits are 25 bytes; a number with an exponent has 24.
SCRATCH_BYTES = 48  # 24 digits, and the bytes that a read touches behind them.
_DIGITS = 24
_EXPONENT_MIN, _EXPONENT_MAX = -292, 324

_0, _1, _2, _4, _8, _10 = (np.uint64(number) for number in (0, 1, 2, 4, 8, 10))
_FRACTION = np.uint64((1 << 52) - 1)
_HIDDEN_BIT = np.uint64(1 << 52)
_GROUP = np.uint64(100_000_000)
_ZEROS = np.uint64(0x3030_3030_3030_3030)  # `00000000`
_INTEGER_MAX = 2.0**53


def powers_of_ten() -> NDArray[np.uint64]:
    """A table (617, 2) of 10**k for k from -292 on: the high and low 64 bits of a mantissa of 128 bits, rounded up."""
    rows = []
    for k in range(_EXPONENT_MIN, _EXPONENT_MAX + 1):
        if k >= 0:
            power = 10**k
            shift = 128 - power.bit_length()
            mantissa = power << shift if shift >= 0 else -(-power >> -shift)
        else:
            power = 10**-k
            mantissa = -(-(1 << (127 + power.bit_length())) // power)
        rows.append((mantissa >> 64, mantissa & ((1 << 64) - 1)))
    return np.array(rows, np.uint64)


@helper
def write_float(
    out: NDArray[np.uint8],
    at: int,
    value: float,
    bits: np.uint64,
    powers: NDArray[np.uint64],
    scratch: NDArray[np.uint8],
) -> int:
    """Write `value` at `out[at:]`. Returns the position after it. bits: the bits of `value`. Up to 24 more bytes are
    overwritten.

    Below 1e-6 and from 1e21 on the text has an exponent, as in Prometheus's vectors and matrices.

    """
    if value != value:
        return _word(out, at, np.uint64(0x4E614E), 3)  # NaN
    if bits >> np.uint64(63):
        if value == -np.inf:
            return _word(out, at, np.uint64(0x666E492D), 4)  # -Inf
        out[at] = 45
        at += 1
        value = -value
    elif value == np.inf:
        return _word(out, at, np.uint64(0x666E492B), 4)  # +Inf
    if value < _INTEGER_MAX and value == np.floor(value):
        return write_integer(out, at, np.uint64(value), scratch)
    digits, exponent = _shortest(bits & ~(_1 << np.uint64(63)), powers)
    first, last = _digits_of(digits, scratch)
    has_exponent = value < 1e-6 or value >= 1e21
    return _write_digits(out, at, scratch, first, last - first, exponent + _DIGITS - last, has_exponent)


@helper
def write_integer(out: NDArray[np.uint8], at: int, value: np.uint64, scratch: NDArray[np.uint8]) -> int:
    """Write an integer at `out[at:]`. Returns the position after it. Up to 24 more bytes are overwritten."""
    if value < _10:
        out[at] = np.uint8(value + np.uint64(48))
        return at + 1
    if value < _GROUP:
        word = _eight_digits(value)
        skipped = trailing_zeros(word) >> 3
        store_u64(out, at, (word | _ZEROS) >> np.uint64(8 * skipped))
        return at + 8 - skipped
    first, _ = _digits_of(value, scratch)
    _copy_24(out, at, scratch, first)
    return at + _DIGITS - first


@helper
def _word(out: NDArray[np.uint8], at: int, word: np.uint64, size: int) -> int:
    store_u64(out, at, word)
    return at + size


@helper
def _shortest(bits: np.uint64, powers: NDArray[np.uint64]) -> tuple[np.uint64, int]:
    """(m, k): m x 10**k is the shortest decimal of a positive float, but for zeros at the end of m."""
    fraction, biased = bits & _FRACTION, _signed(bits >> np.uint64(52))
    significand, exponent = (fraction | _HIDDEN_BIT, biased - 1075) if biased else (fraction, -1074)
    odd = significand & _1
    closer = _1 if fraction == _0 and biased > 1 else _0  # The lower neighbour is at half the distance.
    k = (exponent * 1_262_611 - (524_031 if closer else 0)) >> 22
    shift = np.uint64(exponent + ((-k * 1_741_647) >> 19) + 1)
    high, low = powers[-k - _EXPONENT_MIN, 0], powers[-k - _EXPONENT_MIN, 1]
    middle = significand * _4
    lower = _rounded_to_odd(high, low, (middle - _2 + closer) << shift) + odd
    scaled = _rounded_to_odd(high, low, middle << shift)
    upper = _rounded_to_odd(high, low, (middle + _2) << shift) - odd
    digits = scaled // _4
    if digits >= _10:
        tens = digits // _10
        below, above = lower <= tens * np.uint64(40), tens * np.uint64(40) + np.uint64(40) <= upper
        if below != above:
            return tens + (_1 if above else _0), k + 1
    below, above = lower <= digits * _4, digits * _4 + _4 <= upper
    if below != above:
        return digits + (_1 if above else _0), k
    half = digits * _4 + _2
    up = scaled > half or (scaled == half and digits & _1 == _1)
    return digits + (_1 if up else _0), k


@helper
def _signed(value: Any) -> int:
    return np.int64(value)  # type: ignore[return-value]  # In a kernel they are one type.


@helper
def _rounded_to_odd(high: np.uint64, low: np.uint64, factor: np.uint64) -> np.uint64:
    carried = multiply_high(low, factor)
    rest = high * factor + carried
    top: np.uint64 = multiply_high(high, factor) + (_1 if rest < carried else _0)
    return top | (_1 if rest > _1 else _0)


@helper
def _digits_of(value: np.uint64, scratch: NDArray[np.uint8]) -> tuple[int, int]:
    """Write a positive number as 24 digits into `scratch`: (first digit that is not 0, one past the last such)."""
    rest = value // _GROUP
    top = rest // _GROUP
    low, middle, high = _eight_digits(value - rest * _GROUP), _eight_digits(rest - top * _GROUP), _eight_digits(top)
    store_u64(scratch, 0, high | _ZEROS)
    store_u64(scratch, 8, middle | _ZEROS)
    store_u64(scratch, 16, low | _ZEROS)
    if high:
        first = trailing_zeros(high) >> 3
    elif middle:
        first = 8 + (trailing_zeros(middle) >> 3)
    else:
        first = 16 + (trailing_zeros(low) >> 3)
    if low:
        last = 24 - (leading_zeros(low) >> 3)
    elif middle:
        last = 16 - (leading_zeros(middle) >> 3)
    else:
        last = 8 - (leading_zeros(high) >> 3)
    return first, last


@helper
def _eight_digits(value: np.uint64) -> np.uint64:
    """A number below 10**8 as 8 digits of the values 0 to 9, with the first digit in the lowest byte."""
    fours = value // np.uint64(10_000)
    merged = fours | ((value - fours * np.uint64(10_000)) << np.uint64(32))
    hundreds = ((merged * np.uint64(10_486)) >> np.uint64(20)) & np.uint64(0x7F_0000_007F)
    pairs = hundreds | ((merged - hundreds * np.uint64(100)) << np.uint64(16))
    tens = ((pairs * np.uint64(103)) >> _10) & np.uint64(0xF_000F_000F_000F)
    return tens | ((pairs - tens * _10) << _8)


@helper
def _write_digits(
    out: NDArray[np.uint8],
    at: int,
    scratch: NDArray[np.uint8],
    first: int,
    count: int,
    exponent: int,
    scientific: bool,
) -> int:
    """Write the `count` digits at `scratch[first:]`, times 10**exponent."""
    point = count + exponent  # Number of digits before the point.
    if scientific:
        out[at] = scratch[first]
        at += 1
        if count > 1:
            out[at] = 46
            _copy_24(out, at + 1, scratch, first + 1)
            at += count
        return _write_exponent(out, at, point - 1)
    if point <= 0:
        store_u64(out, at, np.uint64(0x3030_3030_3030_2E30))  # `0.000000`, which is enough from 1e-6 on.
        _copy_24(out, at + 2 - point, scratch, first)
        return at + 2 - point + count
    _copy_24(out, at, scratch, first)
    if point >= count:
        for place in range(at + count, at + point):
            out[place] = 48
        return at + point
    out[at + point] = 46
    _copy_24(out, at + point + 1, scratch, first + point)
    return at + count + 1


@helper
def _write_exponent(out: NDArray[np.uint8], at: int, exponent: int) -> int:
    """Write `e+21` or `e-07`: a sign and at least two digits."""
    out[at] = 101
    out[at + 1] = 45 if exponent < 0 else 43
    exponent = abs(exponent)
    at += 2
    if exponent >= 100:
        out[at] = 48 + exponent // 100
        at += 1
    out[at] = 48 + exponent // 10 % 10
    out[at + 1] = 48 + exponent % 10
    return at + 2


@helper
def _copy_24(out: NDArray[np.uint8], at: int, source: NDArray[np.uint8], start: int) -> None:
    store_u64(out, at, load_u64(source, start))
    store_u64(out, at + 8, load_u64(source, start + 8))
    store_u64(out, at + 16, load_u64(source, start + 16))

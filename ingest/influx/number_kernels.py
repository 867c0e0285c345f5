"""Helpers that read decimal numbers as the nearest float64, bit for bit like Python's float().

Eisel-Lemire ("Number parsing at a gigabyte per second", 2021) over 128-bit powers of ten. Some numbers of more
than 19 digits, and subnormals, are UNDECIDED: the caller gives their text to float(). Twin: float().
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper

OK, UNDECIDED, BAD_NUMBER, OUT_OF_RANGE = 0, 1, 2, 3

_Q_MIN, _Q_MAX = -342, 308  # Below the first, a 64-bit integer times 10**q is 0; above the second, it is infinite.
_DIGITS = 19  # They always fit 64 bits.
_EXPONENT_MAX = 100_000
_FLOAT_BIAS = 1023
_EXPONENT_ALL = 0x7FF

_0, _1, _2, _3, _9, _32 = (np.uint64(number) for number in (0, 1, 2, 3, 9, 32))
_LOW_HALF = np.uint64(0xFFFF_FFFF)
# This NaN, as float64 bits, marks an undecided number; no number has these bits.
_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_INFINITE = np.uint64(_EXPONENT_ALL << 52)
_SIGN = np.uint64(1 << 63)
_HIDDEN_BIT = np.uint64(1 << 52)
_NINE_BITS = np.uint64(0x1FF)
_INT64_MAX = np.uint64((1 << 63) - 1)


def _powers() -> NDArray[np.uint64]:
    """(651, 2): 10**q for q from -342 on, as the high and low 64 bits of a 128-bit mantissa whose top bit is set."""
    rows = []
    for q in range(_Q_MIN, _Q_MAX + 1):
        power = 5 ** abs(q)
        size = power.bit_length()
        if q >= 0:
            mantissa = power << 128 - size if size <= 128 else power >> size - 128
        else:
            # Rounded up; the quotient of a power above 2**64 has more than 128 bits and is cut.
            mantissa = (1 << (size + 127 if q >= -27 else 2 * size + 128)) // power + 1
            mantissa >>= max(0, mantissa.bit_length() - 128)
        rows.append((mantissa >> 64, mantissa & ((1 << 64) - 1)))
    return np.array(rows, np.uint64)


_POWERS = _powers()


@helper
def parse_float(data: NDArray[np.uint8], start: int, end: int, bits: NDArray[np.uint64], at: int) -> int:
    """Read [+-]digits[.digits][e[+-]digits] that fills data[start:end) into bits[at]: OK, UNDECIDED, BAD_NUMBER or
    OUT_OF_RANGE."""
    p, negative = _sign(data, start, end)
    mantissa, digits, exponent = _0, 0, 0
    seen, fraction, cut = False, False, False
    while p < end:
        byte = data[p]
        if byte >= 48 and byte <= 57:
            seen = True
            if digits < _DIGITS:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
                digits += mantissa != _0
                exponent -= fraction
            else:
                cut = cut or byte != 48
                exponent += not fraction
        elif byte == 46 and not fraction:
            fraction = True
        else:
            break
        p += 1
    if not seen:
        return BAD_NUMBER
    if p < end and (data[p] == 69 or data[p] == 101):
        p, power = _exponent(data, p + 1, end)
        exponent += power
    if p != end:
        return BAD_NUMBER
    found = nearest_bits(mantissa, exponent)
    if cut and nearest_bits(mantissa + _1, exponent) != found:
        found = _ALL
    if found == _INFINITE:
        return OUT_OF_RANGE
    bits[at] = found | (_SIGN if negative else _0)
    return UNDECIDED if found == _ALL else OK


@helper
def parse_integer(
    data: NDArray[np.uint8], start: int, end: int, signed: bool, bits: NDArray[np.uint64], at: int
) -> int:
    """Read an int64, or a uint64 unless `signed`, that fills data[start:end), as the nearest float64 into bits[at]."""
    p, negative = start, False
    if signed:
        p, negative = _sign(data, start, end)
    code, magnitude = _digits(data, p, end)
    if code:
        return code
    if signed and magnitude > _INT64_MAX + (_1 if negative else _0):
        return OUT_OF_RANGE
    bits[at] = nearest_bits(magnitude, 0) | (_SIGN if negative and magnitude else _0)
    return OK


@helper
def parse_int64(data: NDArray[np.uint8], start: int, end: int, out: NDArray[np.int64], at: int) -> int:
    """Read an int64 that fills data[start:end) into out[at]."""
    p, negative = _sign(data, start, end)
    code, magnitude = _digits(data, p, end)
    if code:
        return code
    if magnitude > _INT64_MAX + (_1 if negative else _0):
        return OUT_OF_RANGE
    out[at] = -np.int64(magnitude) if negative else np.int64(magnitude)
    return OK


@helper
def _sign(data: NDArray[np.uint8], start: int, end: int) -> tuple[int, bool]:
    """(the position after a sign, whether it is a minus)."""
    if start < end and (data[start] == 43 or data[start] == 45):
        return start + 1, data[start] == 45
    return start, False


@helper
def _exponent(data: NDArray[np.uint8], start: int, end: int) -> tuple[int, int]:
    """(the position after the exponent, its value); the position is -1 without a digit."""
    p, negative = _sign(data, start, end)
    first, value = p, 0
    while p < end and data[p] >= 48 and data[p] <= 57:
        value = min(10 * value + int(data[p]) - 48, _EXPONENT_MAX)
        p += 1
    return (p if p > first else -1), (-value if negative else value)


@helper
def _digits(data: NDArray[np.uint8], start: int, end: int) -> tuple[int, np.uint64]:
    """(OK, BAD_NUMBER or OUT_OF_RANGE; the number that fills data[start:end))."""
    value = _0
    if start >= end:
        return BAD_NUMBER, value
    code = OK
    for p in range(start, end):
        if data[p] < 48 or data[p] > 57:
            return BAD_NUMBER, value
        digit = np.uint64(data[p] - 48)
        if value > (_ALL - digit) // np.uint64(10):
            code = OUT_OF_RANGE
        value = value * np.uint64(10) + digit
    return code, value


@helper
def nearest_bits(mantissa: np.uint64, q: int) -> np.uint64:
    """float64 bits of mantissa x 10**q, rounded half to even; all bits set when undecided."""
    if mantissa == _0 or q < _Q_MIN:
        return _0
    if q > _Q_MAX:
        return _INFINITE
    zeros = _leading_zeros(mantissa)
    scaled = mantissa << np.uint64(zeros)
    high, low = _product(scaled, _POWERS[q - _Q_MIN, 0])
    if high & _NINE_BITS == _NINE_BITS:
        second, _ = _product(scaled, _POWERS[q - _Q_MIN, 1])
        low += second
        if second > low:
            high += _1
    if low == _ALL and (q < -27 or q > 55):
        return _ALL
    top = high >> np.uint64(63)
    shift = top + _9
    result = high >> shift
    exponent = ((217_706 * q) >> 16) + 63 + np.int64(top) - zeros + _FLOAT_BIAS
    if exponent <= 0:
        return _ALL  # The number is subnormal or 0: float() decides.
    if low <= _1 and q >= -4 and q <= 23 and result & _3 == _1 and result << shift == high:
        result &= ~_1  # The number lies exactly between two floats, so it is rounded to even.
    result = (result + (result & _1)) >> _1
    if result >= _HIDDEN_BIT << _1:
        result = _HIDDEN_BIT
        exponent += 1
    if exponent >= _EXPONENT_ALL:
        return _INFINITE
    return (result & ~_HIDDEN_BIT) | (np.uint64(exponent) << np.uint64(52))


@helper
def _leading_zeros(value: np.uint64) -> int:
    zeros = 0
    step = 32
    while step:
        if value >> np.uint64(64 - step) == _0:
            value = value << np.uint64(step)
            zeros += step
        step >>= 1
    return zeros


@helper
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """(high, low) 64 bits of a x b."""
    a_low, a_high = a & _LOW_HALF, a >> _32
    b_low, b_high = b & _LOW_HALF, b >> _32
    low = a_low * b_low
    middle = a_high * b_low + (low >> _32)
    other = a_low * b_high + (middle & _LOW_HALF)
    return a_high * b_high + (middle >> _32) + (other >> _32), a * b

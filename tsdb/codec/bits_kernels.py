"""Bits of one integer: computes lengths, trailing zeros, zigzag, and the order-preserving integer of a float64.

All on int64 that wraps modulo 2^64, as two's complement does; a kernel that mixes int64 and uint64 would silently get
floats. Operations that must ignore the sign are intrinsics.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tsdb.codec.jit import helper, intrinsic

LOG2_OF_TOP = np.array([round(math.log2(1 + top / 256) * 65536) for top in range(256)])
ALL_BUT_SIGN = 0x7FFFFFFFFFFFFFFF
_WORD = 0xFFFFFFFFFFFFFFFF


@intrinsic
def shift_right(value: int, bits: int) -> int:
    """Logical shift of an int64, 0 <= bits <= 63."""
    shifted = (int(value) & _WORD) >> int(bits)
    return shifted - (1 << 64) if shifted >> 63 else shifted


@intrinsic
def divide_u32(value: int, by: int) -> int:
    """Quotient of two integers below 2^32, the second not 0. It takes half the cycles of Python's 64-bit division,
    which rounds."""
    return value // by


@intrinsic
def leading_zeros(value: int | np.integer[Any]) -> int:
    """Number of zeros above the highest set bit of an int64 or uint64; 64 for 0."""
    return 64 - (int(value) & _WORD).bit_length()


@intrinsic
def trailing_zeros(value: int | np.integer[Any]) -> int:
    """Number of zeros below the lowest set bit of an int64 or uint64; 64 for 0."""
    return (int(value) & -int(value)).bit_length() - 1 if value else 64


@intrinsic
def multiply_high(left: np.uint64, right: np.uint64) -> np.uint64:
    """Upper 64 bits of the product of two uint64."""
    return np.uint64(int(left) * int(right) >> 64)


@intrinsic
def swap_bytes(value: np.uint64) -> np.uint64:
    """A uint64 with its bytes in reverse order."""
    return np.uint64(int.from_bytes(int(value).to_bytes(8, "little"), "big"))


@helper
def bit_length(value: int) -> int:
    """Bits needed for value as unsigned: 0 for 0, 64 for a negative one."""
    return 64 - int(leading_zeros(value))


@helper
def log2_q16(value: int) -> int:
    """log2 of value >= 1 in units of 2^-16, within 0.006 of it. In integers, so that all machines choose alike."""
    length = bit_length(value)
    top = value >> (length - 9) if length > 9 else value << (9 - length)
    return ((length - 1) << 16) + int(LOG2_OF_TOP[top - 256])


@helper
def zigzag(value: int) -> int:
    """Maps 0, -1, 1, -2 ... to 0, 1, 2, 3 ..., unsigned in an int64."""
    return (value << 1) ^ (value >> 63)


@helper
def unzigzag(value: int) -> int:
    return int(shift_right(value, 1)) ^ -(value & 1)


@helper
def ordered(bits: int) -> int:
    """The int64 whose order is the order of the floats with these bits: -0.0 is -1, +0.0 is 0. Its own inverse."""
    return bits ^ ((bits >> 63) & ALL_BUT_SIGN)

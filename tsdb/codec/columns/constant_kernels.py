"""Columns of one value: one byte for a small count, the value's own integer and scale otherwise, at most nine bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import unzigzag, zigzag
from tsdb.codec.columns.scale_choice_kernels import decimal_scale
from tsdb.codec.columns.scale_kernels import FLOAT_BITS, NO_SCALE, integer_of, to_float
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64, store_i64
from tsdb.codec.varint_kernels import get_varint, put_varint, varint_bytes

SMALL_MAX = 127  # The first byte is the value itself, up to this number.
SCALED = 128  # + scale byte, zigzag varint
BITS = 129  # The first byte; 8 bytes follow.


@helper
def is_constant(values: NDArray[np.float64], start: int, n: int) -> bool:
    first: int = load_i64(values, start * 8)
    for index in range(start + 1, start + n):  # noqa: SIM110  # numba compiles no generator
        if load_i64(values, index * 8) != first:
            return False
    return True


@helper
def write_constant(values: NDArray[np.float64], start: int, out: NDArray[np.uint8], pos: int) -> int:
    """Write a column in which all values have the bits of values[start]. Returns the new position."""
    scale = decimal_scale(values[start])
    if scale != NO_SCALE:
        integer = integer_of(scale, values[start])
        if scale == 0 and 0 <= integer <= SMALL_MAX:
            out[pos] = np.uint8(integer)
            return pos + 1
        if varint_bytes(zigzag(integer)) < 7:
            out[pos] = SCALED
            out[pos + 1] = np.uint8(scale)
            return put_varint(zigzag(integer), out, pos + 2)
    out[pos] = BITS
    store_i64(out, pos + 1, load_i64(values, start * 8))
    return pos + 9


@helper
def read_constant(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.float64], at: int) -> int:
    """Fill out[at : at + n] from a column whose first byte, at pos < end, is at most BITS. Returns the new position, or
    -1."""
    head = int(data[pos])
    pos += 1
    if head <= SMALL_MAX:
        value = float(head)
    elif head == SCALED:
        if pos >= end or data[pos] >= FLOAT_BITS:
            return -1
        integer, stop = get_varint(data, pos + 1, end)
        if stop < 0:
            return stop
        value = to_float(int(data[pos]), unzigzag(integer))
        pos = stop
    else:
        if end - pos < 8:
            return -1
        # Copied as integers: a signalling NaN must not pass through a float register that quiets it.
        bits: int = load_i64(data, pos)
        for index in range(at, at + n):
            store_i64(out, index * 8, bits)
        return pos + 8
    for index in range(at, at + n):
        out[index] = value
    return pos

"""Encodes and decodes columns for other kernels: values here, times in times_kernels.

Layout: docs/formats/columns.md, "Value columns". The encoder chooses the form of each column by size. The first bytes
of a column name the form; the count of values is not stored. A decoder trusts nothing: it stays within [pos, end) and
within the caller's count, and returns a negative position for bytes that are not a column.

A column of one value takes one byte for a small count, and otherwise the value's integer and scale, at most nine bytes.

Dense value columns are smaller than packed ones, and slower both ways. Chunks have them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import unzigzag, zigzag
from tsdb.codec.columns.dictionary_kernels import DICTIONARY, read_dictionary, write_dictionary
from tsdb.codec.columns.frame_kernels import head_of, plan_entropy, write_entropy_frame
from tsdb.codec.columns.multiples_kernels import MULTIPLES, read_multiples, write_multiples
from tsdb.codec.columns.packed_kernels import (
    SHORT,
    exceptions_bytes,
    read_packed,
    write_exceptions,
    write_head,
    write_packed,
)
from tsdb.codec.columns.scale_kernels import FLOAT_BITS, NO_SCALE, decimal_scale, integer_of, integers_of, to_float
from tsdb.codec.columns.times_kernels import decode_times_kernel, encode_times_kernel, times_bound
from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import copy_bytes, load_i64, store_i64
from tsdb.codec.varint_kernels import get_varint, put_varint, varint_bytes

SMALL_MAX = 127  # The first byte is the value itself, up to this number.
SCALED = 128  # A scale byte and a zigzag varint follow.
BITS = 129  # The first byte; 8 bytes follow.

DENSE_FORMS = 3
MULTIPLES_FROM = 3  # Bytes for each value. A smaller column consists of small integers.

__all__ = [
    "decode_times_kernel",
    "decode_values_kernel",
    "encode_times_kernel",
    "encode_values_dense_kernel",
    "encode_values_kernel",
    "times_bound",
    "values_bound",
]

DENSE_FROM = 10  # bytes: a smaller column has nothing to gain
DENSE_GAIN = 64  # a form must save this part of the size: noise decodes twenty times faster from blocks
RAW = 130  # The first byte; 8 bytes for each value follow.


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


@helper
def write_dense(
    form: int,
    values: NDArray[np.float64],
    start: int,
    n: int,
    out: NDArray[np.uint8],
    bound: int,
    scratch: NDArray[np.int64],
) -> int:
    """Write values[start : start + n], n >= 2, to out in one of DENSE_FORMS. Returns the bytes, or -1 if they are not
    below bound."""
    if form == 0:
        return _write_entropy(values, start, n, out, bound, scratch)
    if form == 1:
        return write_dictionary(values, start, n, out, bound, scratch)
    return write_multiples(values, start, n, out, bound, scratch) if bound > MULTIPLES_FROM * n else -1


@helper
def _write_entropy(
    values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], bound: int, scratch: NDArray[np.int64]
) -> int:
    """A packed column whose residuals go through the entropy coder."""
    integers, exceptions, residuals = scratch[:n], scratch[n : 2 * n], scratch[2 * n : 3 * n]
    scale, found = integers_of(values, start, n, integers, exceptions)
    planned = plan_entropy(integers, n, scale == FLOAT_BITS, residuals)
    aside = exceptions_bytes(exceptions, found)
    if planned[0] + aside > bound:
        return -1
    pos = write_head(head_of(planned), scale, found, out, 0)
    pos = write_entropy_frame(planned, n, residuals, out, pos, bound - aside)
    return write_exceptions(values, start, exceptions, found, out, pos) if pos >= 0 else -1


@kernel
def values_bound(n: int) -> int:
    """Bytes that n encoded values take at most: a first byte and the floats themselves."""
    return 8 * n + 1


@kernel
def encode_values_kernel(
    values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], pos: int, scratch: NDArray[np.int64]
) -> int:
    """Write values[start : start + n], 0 <= n < 2^31, at out[pos:]. Returns the new position, at most pos +
    values_bound(n).

    values and out are contiguous; what lies behind the new position, up to that bound, may be overwritten.
    scratch: at least 4 n + 64 items, contents lost.

    """
    if n == 0:
        return int(pos)
    if is_constant(values, start, n):
        return write_constant(values, start, out, pos)
    stop = write_packed(values, start, n, out, pos, scratch, values_bound(n))
    return stop if stop >= 0 else _write_raw(values, start, n, out, pos)


@kernel
def encode_values_dense_kernel(
    values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], pos: int, scratch: NDArray[np.int64]
) -> int:
    """Does what encode_values_kernel does, and tries the entropy coder too: smaller, and slower both ways. Used for
    chunks."""
    stop = encode_values_kernel(values, start, n, out, pos, scratch)
    if stop - pos <= DENSE_FROM:
        return stop
    buffer = np.empty(stop - pos, np.uint8)
    size = stop - pos
    for form in range(DENSE_FORMS):
        dense = write_dense(form, values, start, n, buffer, size, scratch)
        if 0 <= dense < size - size // DENSE_GAIN:
            size = dense
            copy_bytes(out, pos, buffer, 0, size)
    return pos + size


@helper
def _write_raw(values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], pos: int) -> int:
    out[pos] = RAW
    copy_bytes(out, pos + 1, values, start * 8, n * 8)
    return pos + 1 + n * 8


@kernel
def decode_values_kernel(
    data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.float64], out_pos: int
) -> int:
    """Fill out[out_pos : out_pos + n] from data[pos:end]; the new position, negative when the bytes are not such a
    column.

    After a negative answer out[out_pos : out_pos + n] is undefined.
    """
    if n == 0:
        return int(pos)
    if n < 0 or pos < 0 or pos >= end:
        return -1
    head = int(data[pos])
    if head <= BITS:
        return read_constant(data, pos, end, n, out, out_pos)
    if head == MULTIPLES:
        return read_multiples(data, pos + 1, end, n, out, out_pos)
    if head == DICTIONARY:
        return read_dictionary(data, pos + 1, end, n, out, out_pos)
    if head >= SHORT:
        return read_packed(data, pos, end, n, out, out_pos)
    if head != RAW or (end - pos - 1) // 8 < n:
        return -1
    copy_bytes(out, out_pos * 8, data, pos + 1, n * 8)
    return pos + 1 + n * 8

"""Encodes and decodes columns for other kernels: values here, times in times_kernels.

Layout: docs/formats/columns.md, "Value columns". The encoder chooses the form of each column by size. The first bytes
of a column name the form; the count of values is not stored. A decoder trusts nothing: it stays within [pos, end) and
within the caller's count, and returns a negative position for bytes that are no column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.constant_kernels import BITS, is_constant, read_constant, write_constant
from tsdb.codec.columns.dense_kernels import DENSE_FORMS, write_dense
from tsdb.codec.columns.dictionary_kernels import DICTIONARY, read_dictionary
from tsdb.codec.columns.multiples_kernels import MULTIPLES, read_multiples
from tsdb.codec.columns.packed_kernels import SHORT, read_packed, write_packed
from tsdb.codec.columns.times_kernels import decode_times_kernel, encode_times_kernel, times_bound
from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import copy_bytes

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
    room = np.empty(stop - pos, np.uint8)
    size = stop - pos
    for form in range(DENSE_FORMS):
        dense = write_dense(form, values, start, n, room, size, scratch)
        if 0 <= dense < size - size // DENSE_GAIN:
            size = dense
            copy_bytes(out, pos, room, 0, size)
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
    """Fill out[out_pos : out_pos + n] from data[pos:end]; the new position, negative when the bytes are no such column.

    After a negative answer what lies in out[out_pos : out_pos + n] means nothing.
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

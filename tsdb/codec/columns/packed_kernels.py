"""Packed value columns: a scale, a frame of the integers it gives, and beside it the few values that fit no scale.

Layout: docs/formats/columns.md, "Packed columns".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.frame_kernels import ENTROPY, ONE_BLOCK, head_of, plan_steps, plan_xor, read_frame, write_frame
from tsdb.codec.columns.residual_kernels import DELTA, LEVEL, LEVEL_AROUND, RISE, RISE_AROUND, SLOPE
from tsdb.codec.columns.scale_kernels import FLOAT_BITS, SCALES, float_integers, integers_of, put_floats
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import as_int64, load_i64, store_i64
from tsdb.codec.varint_kernels import get_varint, put_varint, varint_bytes

# The first byte is PACKED | head of the frame, and the scale byte follows. For the usual heads and scales it is SHORT +
# 16 * scale + head.
PACKED = 192
SHORT = 132
SHORT_SCALES = np.array([0, 2, 9])
SHORT_HEADS = np.array(
    [way << 3 | ONE_BLOCK << 1 | stepped for way in (LEVEL, DELTA, SLOPE, RISE) for stepped in (0, 1)]
    + [way << 3 | ENTROPY << 1 | stepped for way in (DELTA, SLOPE, LEVEL_AROUND, RISE_AROUND) for stepped in (0, 1)]
)
EXCEPTED = 128  # Flag in the scale byte: exceptions follow the frame.
# Bytes for each value. With as many or more, a scale may gain nothing over the bits of the float.
FLOATS_TRIED_FROM = 5


@helper
def write_packed(
    values: NDArray[np.float64],
    start: int,
    n: int,
    out: NDArray[np.uint8],
    pos: int,
    scratch: NDArray[np.int64],
    bound: int,
) -> int:
    """Write values[start : start + n], n >= 2, if that takes less than bound bytes. Returns the new position, otherwise
    -1."""
    integers, exceptions = scratch[:n], scratch[n : 2 * n]
    residuals, others = scratch[2 * n : 3 * n], scratch[3 * n : 4 * n]
    scale, found = integers_of(values, start, n, integers, exceptions)
    planned = plan_steps(integers, n, scale == FLOAT_BITS, residuals)
    size = planned[0] + exceptions_bytes(exceptions, found)
    if size > n * FLOATS_TRIED_FROM and scale != FLOAT_BITS:
        float_integers(values, start, n, integers)
        other = plan_steps(integers, n, True, others)
        if other[0] < size:
            planned, size, scale, found = other, other[0], FLOAT_BITS, 0
            residuals, others = others, residuals
    if scale == FLOAT_BITS:
        float_integers(values, start, n, integers)
        other = plan_xor(integers, n, others)
        if other[0] < size:
            planned, size = other, other[0]
            residuals = others
    if size + 2 >= bound:
        return -1
    pos = write_head(head_of(planned), scale, found, out, pos)
    pos = write_frame(planned, n, residuals, out, pos)
    return write_exceptions(values, start, exceptions, found, out, pos)


@helper
def write_head(head: int, scale: int, found: int, out: NDArray[np.uint8], pos: int) -> int:
    """Write one or two bytes. Returns the new position."""
    if found == 0:
        for nth_scale in range(len(SHORT_SCALES)):
            for nth in range(len(SHORT_HEADS)):
                if SHORT_SCALES[nth_scale] == scale and SHORT_HEADS[nth] == head:
                    out[pos] = np.uint8(SHORT + nth_scale * len(SHORT_HEADS) + nth)
                    return pos + 1
    out[pos] = np.uint8(PACKED | head)
    out[pos + 1] = np.uint8(scale | (EXCEPTED if found else 0))
    return pos + 2


@helper
def read_packed(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.float64], at: int) -> int:
    """Fill out[at : at + n] from a column whose first byte, at pos < end, is >= SHORT. Returns the new position, or
    -1."""
    head, scale, excepted = int(data[pos]), 0, False
    pos += 1
    if head >= PACKED:
        head -= PACKED
        if pos >= end:
            return -1
        scale, excepted = int(data[pos]) & ~EXCEPTED, data[pos] >= EXCEPTED
        pos += 1
    else:
        short = head - SHORT
        if short >= len(SHORT_SCALES) * len(SHORT_HEADS):
            return -1
        head, scale = int(SHORT_HEADS[short % len(SHORT_HEADS)]), int(SHORT_SCALES[short // len(SHORT_HEADS)])
    if scale >= SCALES:
        return -1
    pos = read_frame(data, pos, end, head, n, as_int64(out), at)
    if pos < 0:
        return pos
    put_floats(out, at, n, scale)
    return _read_exceptions(data, pos, end, n, out, at) if excepted else pos


@helper
def exceptions_bytes(exceptions: NDArray[np.int64], found: int) -> int:
    if found == 0:
        return 0
    size, last = varint_bytes(int(found)), -1
    for nth in range(found):
        size += 8 + varint_bytes(exceptions[nth] - last - 1)
        last = exceptions[nth]
    return size


@helper
def write_exceptions(
    values: NDArray[np.float64], start: int, exceptions: NDArray[np.int64], found: int, out: NDArray[np.uint8], pos: int
) -> int:
    if found == 0:
        return pos
    pos = put_varint(found, out, pos)
    last = -1
    for nth in range(found):
        pos = put_varint(exceptions[nth] - last - 1, out, pos)
        store_i64(out, pos, load_i64(values, (start + exceptions[nth]) * 8))
        pos += 8
        last = exceptions[nth]
    return pos


@helper
def _read_exceptions(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.float64], at: int) -> int:
    found, pos = get_varint(data, pos, end)
    last = -1
    if pos < 0 or found < 1 or found > n:
        return -1
    for _ in range(found):
        gap, pos = get_varint(data, pos, end)
        if pos < 0 or end - pos < 8 or gap < 0 or gap >= n - last - 1:
            return -1
        last += gap + 1
        store_i64(out, (at + last) * 8, load_i64(data, pos))
        pos += 8
    return pos

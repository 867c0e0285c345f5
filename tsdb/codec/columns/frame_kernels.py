"""Frames: encode integers as a step, a first value and packed residuals; used by value columns and time axes.

Layout: docs/formats/columns.md, "Frames". The way, the packing and whether a step follows are in the head byte that the
column or axis writes: bits 3-5, 1-2 and 0. plan_kernels decides what a frame contains.

A plan tells which way and packing take the fewest bytes for a frame of integers.

A plan is (bytes, way, packing, first, middle, step); numba needs a tuple. The encoder alone plans, so a better choice
changes no format.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import shift_right, trailing_zeros, unzigzag, zigzag
from tsdb.codec.columns.blocks_kernels import BLOCK, blocks_size, read_blocks, write_blocks
from tsdb.codec.columns.entropy_kernels import entropy_size, read_entropy, write_entropy
from tsdb.codec.columns.residual_kernels import (
    DELTA,
    LEVEL,
    LEVEL_AROUND,
    RISE,
    RISE_AROUND,
    SLOPE,
    WAYS,
    XOR,
    cheapest_way,
    common_step,
    divide_by_step,
    has_middle,
    lowest_level,
    middle_level,
    middle_rise,
    put_back,
    residuals_in,
    take_residuals,
    take_xor,
    xor_zeros,
)
from tsdb.codec.jit import helper
from tsdb.codec.varint_kernels import get_varint, put_varint, varint_bytes

# packing
BLOCKS = 0  # A frame of blocks of BLOCK values.
ONE_BLOCK = 1  # A frame of one block with all values.
ENTROPY = 2  # The range coder encodes classes; the lower bits follow.

FIELDS_BYTES_MAX = 30
STEP_PLAIN = 63  # Step codes below it are exponents of 2. From it on, the step itself follows.

ENTROPY_CANDIDATES = 5


@helper
def head_of(planned: tuple[int, int, int, int, int, int]) -> int:
    """The six bits that say how a planned frame is written."""
    _, way, packing, _, _, step = planned
    return way << 3 | packing << 1 | (1 if step > 1 else 0)


@helper
def fields_bytes(way: int, first: int, middle: int, step: int) -> int:
    """Bytes of the step, the first value and the middle."""
    size = 0
    if step > 1:
        size += varint_bytes(_step_code(first, step))
        if first % step == 0:
            first //= step
    size += varint_bytes(zigzag(first))
    return size + varint_bytes(zigzag(middle)) if has_middle(way) else size


@helper
def _write_fields(way: int, first: int, middle: int, step: int, out: NDArray[np.uint8], pos: int) -> int:
    if step > 1:
        pos = put_varint(_step_code(first, step), out, pos)
        if first % step == 0:
            first //= step
    pos = put_varint(zigzag(first), out, pos)
    return put_varint(zigzag(middle), out, pos) if has_middle(way) else pos


@helper
def _step_code(first: int, step: int) -> int:
    """The step, most often a power of two, and in bit 0 whether the first value is stored in steps."""
    power = int(trailing_zeros(step))
    code = power if step == 1 << power else step + STEP_PLAIN
    return code << 1 | (1 if first % step == 0 else 0)


@helper
def _read_fields(data: NDArray[np.uint8], pos: int, end: int, way: int, stepped: bool) -> tuple[int, int, int, int]:
    """(new position or -1, first, middle, step)."""
    code, step = 0, 1
    if stepped:
        code, pos = get_varint(data, pos, end)
        step = int(shift_right(code, 1))
        step = 1 << step if step < STEP_PLAIN else step - STEP_PLAIN
        if pos < 0:
            return -1, 0, 0, 1
    first, pos = get_varint(data, pos, end)
    first, middle = unzigzag(first), 0
    if code & 1:
        first *= step
    if pos >= 0 and has_middle(way):
        middle, pos = get_varint(data, pos, end)
        middle = unzigzag(middle)
    return pos, first, middle, step


@helper
def write_frame(
    planned: tuple[int, int, int, int, int, int],
    n: int,
    residuals: NDArray[np.int64],
    out: NDArray[np.uint8],
    pos: int,
) -> int:
    """Write a planned frame. Returns the new position."""
    _, way, packing, first, middle, step = planned
    pos = _write_fields(way, first, middle, step, out, pos)
    count = residuals_in(way, n)
    return write_blocks(residuals, count, BLOCK if packing == BLOCKS else count, out, pos)


@helper
def write_entropy_frame(
    planned: tuple[int, int, int, int, int, int],
    n: int,
    residuals: NDArray[np.int64],
    out: NDArray[np.uint8],
    pos: int,
    end: int,
) -> int:
    """Write a planned frame; the new position, or -1 if that would pass end."""
    _, way, _, first, middle, step = planned
    if end - pos < FIELDS_BYTES_MAX:
        return -1
    pos = _write_fields(way, first, middle, step, out, pos)
    return write_entropy(residuals, residuals_in(way, n), out, pos, end)


@helper
def read_frame(data: NDArray[np.uint8], pos: int, end: int, head: int, n: int, out: NDArray[np.int64], at: int) -> int:
    """Fill out[at : at + n], items of 8 bytes, with int64; the new position, negative for bytes that are not
    a frame.
    """
    way, packing = head >> 3, (head >> 1) & 3
    if way >= WAYS or packing > ENTROPY or n < 2 or (packing == ENTROPY and way in (LEVEL, XOR, RISE)):
        return -1
    pos, first, middle, step = _read_fields(data, pos, end, way, head & 1 == 1)
    if pos < 0 or (way == XOR and not 0 <= middle <= 63):
        return -1
    count = residuals_in(way, n)
    if packing == ENTROPY:
        pos = read_entropy(data, pos, end, count, out, at + n - count)
    else:
        pos = read_blocks(data, pos, end, count, BLOCK if packing == BLOCKS else count, out, at + n - count)
    if pos >= 0:
        put_back(out, at, n, way, first, middle, step)
    return pos


@helper
def plan_steps(
    integers: NDArray[np.int64], n: int, wraps: bool, residuals: NDArray[np.int64]
) -> tuple[int, int, int, int, int, int]:
    """(bytes without the head, way, packing, first, middle, step) for integers[:n], n >= 2, which are lost.

    wraps: differences may exceed an int64, so only powers of two may divide them. Fills residuals with what
    write_frame is to pack.
    """
    first = integers[0]
    step = common_step(integers, n, wraps)
    divide_by_step(integers, n, step)
    way, lowest, least_rise = cheapest_way(integers, n)
    middle = lowest if way == LEVEL else least_rise
    take_residuals(integers, n, way, middle, residuals)
    if way == LEVEL:
        first += lowest * step
    size, packing = _cheapest_packing(residuals, residuals_in(way, n))
    return size + fields_bytes(way, first, middle, step), way, packing, first, middle, step


@helper
def plan_xor(integers: NDArray[np.int64], n: int, residuals: NDArray[np.int64]) -> tuple[int, int, int, int, int, int]:
    """The same for XOR, which needs the integers as they are and leaves them so."""
    way, zeros = XOR, xor_zeros(integers, n)
    take_xor(integers, n, zeros, residuals)
    size, packing = _cheapest_packing(residuals, n - 1)
    return size + fields_bytes(way, integers[0], zeros, 1), way, packing, integers[0], zeros, 1


@helper
def _cheapest_packing(residuals: NDArray[np.int64], count: int) -> tuple[int, int]:
    size = blocks_size(residuals, count, BLOCK)
    if count > BLOCK:
        whole = blocks_size(residuals, count, count)
        if whole < size:
            return whole, ONE_BLOCK
    return size, BLOCKS


@helper
def plan_entropy(
    integers: NDArray[np.int64], n: int, wraps: bool, residuals: NDArray[np.int64]
) -> tuple[int, int, int, int, int, int]:
    """The same for entropy packing; the size is an estimate. residuals holds those of the chosen way."""
    first = integers[0]
    step = common_step(integers, n, wraps)
    divide_by_step(integers, n, step)
    best, way, middle = 1 << 62, DELTA, 0
    taken = chosen = 0
    for candidate in range(ENTROPY_CANDIDATES):
        new_way, new_middle = _candidate(candidate, integers, n, residuals)
        take_residuals(integers, n, new_way, new_middle, residuals)
        base = first + new_middle * step if new_way == LEVEL_AROUND else first
        size = entropy_size(residuals, residuals_in(new_way, n)) + fields_bytes(new_way, base, new_middle, step)
        taken = candidate
        if size < best:
            best, way, middle, chosen = size, new_way, new_middle, candidate
    if taken != chosen:
        take_residuals(integers, n, way, middle, residuals)
    if way == LEVEL_AROUND:
        first += middle * step
    return best, way, ENTROPY, first, middle, step


@helper
def _candidate(candidate: int, steps: NDArray[np.int64], n: int, scratch: NDArray[np.int64]) -> tuple[int, int]:
    if candidate == 0:
        return DELTA, 0
    if candidate == 1:
        return SLOPE, 0
    if candidate == 2:
        return LEVEL_AROUND, middle_level(steps, n, scratch)
    if candidate == 3:
        return RISE_AROUND, middle_rise(steps, n, scratch)
    return LEVEL_AROUND, lowest_level(steps, n)

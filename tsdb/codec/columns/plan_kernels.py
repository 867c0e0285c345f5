"""Plans: which way and packing take the fewest bytes for a frame of integers.

A plan is (bytes, way, packing, first, middle, step); numba needs a tuple. The encoder alone plans, so a better choice
changes no format.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.blocks_kernels import BLOCK, blocks_size
from tsdb.codec.columns.entropy_kernels import entropy_size
from tsdb.codec.columns.frame_kernels import BLOCKS, ENTROPY, ONE_BLOCK, fields_bytes
from tsdb.codec.columns.residual_kernels import (
    DELTA,
    LEVEL,
    LEVEL_AROUND,
    RISE_AROUND,
    SLOPE,
    XOR,
    cheapest_way,
    common_step,
    divide_by_step,
    lowest_level,
    middle_level,
    middle_rise,
    residuals_in,
    take_residuals,
    take_xor,
    xor_zeros,
)
from tsdb.codec.jit import helper

ENTROPY_CANDIDATES = 5


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
def _candidate(candidate: int, steps: NDArray[np.int64], n: int, room: NDArray[np.int64]) -> tuple[int, int]:
    if candidate == 0:
        return DELTA, 0
    if candidate == 1:
        return SLOPE, 0
    if candidate == 2:
        return LEVEL_AROUND, middle_level(steps, n, room)
    if candidate == 3:
        return RISE_AROUND, middle_rise(steps, n, room)
    return LEVEL_AROUND, lowest_level(steps, n)

"""Headed frames: write a frame behind its own head byte, in blocks or through the entropy coder, whichever is smaller.

Layout: docs/formats/columns.md, "Frames".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.frame_kernels import (
    head_of,
    plan_entropy,
    plan_steps,
    read_frame,
    write_entropy_frame,
    write_frame,
)
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import copy_bytes

HEADS = 64
ALL_ZERO = 64  # Head byte of integers that are all 0; no byte follows.


@helper
def write_dense_frame(
    integers: NDArray[np.int64],
    n: int,
    wraps: bool,
    residuals: NDArray[np.int64],
    copy: NDArray[np.int64],
    out: NDArray[np.uint8],
    pos: int,
    end: int,
) -> int:
    """Write integers[:n], n >= 2, which are lost; the new position, or -1 if that would pass end."""
    if end - pos < 2:
        return -1
    if _all_zero(integers, n):
        out[pos] = ALL_ZERO
        return pos + 1
    copy_bytes(copy, 0, integers, 0, n * 8)
    planned = plan_entropy(integers, n, wraps, residuals)
    stop = -1
    if pos + planned[0] <= end:
        out[pos] = np.uint8(head_of(planned))
        stop = write_entropy_frame(planned, n, residuals, out, pos + 1, end)
    planned = plan_steps(copy, n, wraps, residuals)
    if pos + 1 + planned[0] < (stop if stop >= 0 else end):
        out[pos] = np.uint8(head_of(planned))
        stop = write_frame(planned, n, residuals, out, pos + 1)
    return stop


@helper
def _all_zero(integers: NDArray[np.int64], n: int) -> bool:
    for index in range(n):  # noqa: SIM110  # numba compiles no generator
        if integers[index]:
            return False
    return True


@helper
def read_headed_frame(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.int64], at: int) -> int:
    """Fill out[at : at + n], items of 8 bytes, with int64; the new position, negative for bytes that are not
    a frame.
    """
    if pos >= end or data[pos] > ALL_ZERO:
        return -1
    if data[pos] == ALL_ZERO:
        out[at : at + n] = 0
        return pos + 1
    return read_frame(data, pos + 1, end, int(data[pos]), n, out, at)

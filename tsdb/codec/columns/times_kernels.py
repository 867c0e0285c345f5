"""Time axes to bytes and back: ascending int64 timestamps, a regular axis in a few bytes.

Layout: docs/formats/columns.md, "Time axes".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import unzigzag, zigzag
from tsdb.codec.columns.frame_kernels import (
    head_of,
    plan_entropy,
    plan_steps,
    read_frame,
    write_entropy_frame,
    write_frame,
)
from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import copy_bytes
from tsdb.codec.varint_kernels import get_varint, put_varint

REGULAR = 0  # + zigzag first; zigzag interval when there is a second
FRAMED = 64  # FRAMED | head of the frame, then the frame


@kernel
def times_bound(n: int) -> int:
    """Bytes that n encoded timestamps take at most: whole integers, a byte a block, the frame's own fields."""
    return 8 * n + n // 32 + 40


@kernel
def encode_times_kernel(
    ts: NDArray[np.int64], start: int, n: int, out: NDArray[np.uint8], pos: int, scratch: NDArray[np.int64]
) -> int:
    """Write ts[start : start + n], 0 <= n < 2^31, at out[pos:]. Returns the new position, at most pos + times_bound(n).

    Made for ascending timestamps, exact for any int64. scratch: at least 4 n + 64 items, contents lost.

    """
    if n == 0:
        return int(pos)
    if _is_regular(ts, start, n):
        out[pos] = REGULAR
        pos = put_varint(zigzag(ts[start]), out, pos + 1)
        return put_varint(zigzag(ts[start + 1] - ts[start]), out, pos) if n > 1 else pos
    integers, residuals = scratch[:n], scratch[n : 2 * n]
    far = False
    for index in range(n):
        integers[index] = ts[start + index]
        # Differences of numbers within 2^62 of zero do not overflow.
        far |= abs(integers[index]) >> 62 != 0
    planned = plan_steps(integers, n, far, residuals)
    out[pos] = np.uint8(FRAMED | head_of(planned))
    return write_frame(planned, n, residuals, out, pos + 1)


@helper
def encode_times_dense_kernel(
    ts: NDArray[np.int64], start: int, n: int, out: NDArray[np.uint8], pos: int, scratch: NDArray[np.int64]
) -> int:
    """Does what encode_times_kernel does, and tries the entropy coder too: a quarter less for times with jitter. Used
    for chunks."""
    stop = encode_times_kernel(ts, start, n, out, pos, scratch)
    if n < 2 or out[pos] == REGULAR:
        return stop
    integers, residuals = scratch[:n], scratch[n : 2 * n]
    far = False
    for index in range(n):
        integers[index] = ts[start + index]
        far |= abs(integers[index]) >> 62 != 0
    planned = plan_entropy(integers, n, far, residuals)
    buffer = np.empty(stop - pos, np.uint8)
    buffer[0] = np.uint8(FRAMED | head_of(planned))
    size = write_entropy_frame(planned, n, residuals, buffer, 1, buffer.size)
    if size < 0 or size >= buffer.size:
        return stop
    copy_bytes(out, pos, buffer, 0, size)
    return pos + size


@helper
def _is_regular(ts: NDArray[np.int64], start: int, n: int) -> bool:
    for index in range(start + 2, start + n):  # noqa: SIM110  # numba compiles no generator
        if ts[index] - ts[index - 1] != ts[start + 1] - ts[start]:
            return False
    return True


@kernel
def decode_times_kernel(
    data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.int64], out_pos: int
) -> int:
    """Fill out[out_pos : out_pos + n] from data[pos:end]; the new position, negative for bytes that are not an axis."""
    if n == 0:
        return int(pos)
    if n < 0 or pos < 0 or pos >= end:
        return -1
    head = int(data[pos])
    if head == REGULAR:
        return _read_regular(data, pos + 1, end, n, out, out_pos)
    if head < FRAMED or head >= 2 * FRAMED:
        return -1
    return read_frame(data, pos + 1, end, head - FRAMED, n, out, out_pos)


@helper
def _read_regular(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.int64], at: int) -> int:
    first, pos = get_varint(data, pos, end)
    interval = 0
    if pos >= 0 and n > 1:
        interval, pos = get_varint(data, pos, end)
    if pos < 0:
        return pos
    value = unzigzag(first)
    for index in range(at, at + n):
        out[index] = value
        value += unzigzag(interval)
    return pos

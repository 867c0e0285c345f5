"""Varints: 64 bits as little-endian groups of 7. The high bit of a byte says that another byte follows; at most 10
bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import bit_length, shift_right
from tsdb.codec.jit import helper


@helper
def varint_bytes(value: int) -> int:
    """Encoded size of an int64 taken as unsigned."""
    return max(1, (bit_length(value) + 6) // 7)


@helper
def put_varint(value: int, out: NDArray[np.uint8], pos: int) -> int:
    """Write an int64 taken as unsigned. Returns the new position."""
    while value < 0 or value > 127:
        out[pos] = np.uint8(value & 127 | 128)
        value = shift_right(value, 7)
        pos += 1
    out[pos] = np.uint8(value)
    return pos + 1


@helper
def get_varint(data: NDArray[np.uint8], pos: int, end: int) -> tuple[int, int]:
    """Read a varint: (value, new position). The position is negative when the bytes end first or the value is longer
    than 64 bits."""
    value = 0
    shift = 0
    while pos < end and shift < 64:
        byte = int(data[pos])
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, (pos if shift < 63 or byte < 2 else -1)
        shift += 7
    return value, -1

"""XOR chunks of Prometheus: a time is written as the delta of deltas, a value as its XOR with the value before.

Layout: tsdb/docs/format/chunks.md of Prometheus, "XOR chunk data", after Gorilla (VLDB 2015), section 4.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import leading_zeros, shift_right, trailing_zeros, zigzag
from tsdb.codec.jit import helper, kernel
from tsdb.codec.varint_kernels import put_varint

LEADING_MAX = 31  # Five bits hold the number.
NO_WINDOW = 64  # More leading zeros than any difference that is not 0 can have.


@kernel
def encode_chunk_kernel(ts_ms: NDArray[np.int64], bits: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
    """Write one chunk of at least one sample. Returns its size. bits: the values as bits."""
    count = len(ts_ms)
    out[0], out[1] = np.uint8(count >> 8), np.uint8(count & 255)
    at = 8 * put_varint(zigzag(ts_ms[0]), out, 2)
    at = _put_bits(bits[0], 64, out, at)
    delta = 0
    leading, trailing = NO_WINDOW, 0
    for index in range(1, count):
        next_delta = ts_ms[index] - ts_ms[index - 1]
        second = next_delta - delta
        at = 8 * put_varint(next_delta, out, at >> 3) if index == 1 else _put_second_delta(second, out, at)
        delta = next_delta
        at, leading, trailing = _put_difference(bits[index] ^ bits[index - 1], leading, trailing, out, at)
    return (at + 7) >> 3


@helper
def _put_second_delta(second: int, out: NDArray[np.uint8], at: int) -> int:
    """Write a delta of deltas. A prefix states the width. The ranges reach from -(2^(width-1) - 1) to 2^(width-1)."""
    if second == 0:
        return int(_put_bits(0, 1, out, at))
    if -((1 << 13) - 1) <= second <= 1 << 13:
        return int(_put_bits(second, 14, out, _put_bits(0b10, 2, out, at)))
    if -((1 << 16) - 1) <= second <= 1 << 16:
        return int(_put_bits(second, 17, out, _put_bits(0b110, 3, out, at)))
    if -((1 << 19) - 1) <= second <= 1 << 19:
        return int(_put_bits(second, 20, out, _put_bits(0b1110, 4, out, at)))
    return int(_put_bits(second, 64, out, _put_bits(0b1111, 4, out, at)))


@helper
def _put_difference(
    difference: int, leading: int, trailing: int, out: NDArray[np.uint8], at: int
) -> tuple[int, int, int]:
    """Returns (new position, leading and trailing zeros of the window in use). A difference that fits the window is
    written in it; another one states its own window."""
    if difference == 0:
        return _put_bits(0, 1, out, at), leading, trailing
    its_leading = min(leading_zeros(difference), LEADING_MAX)
    its_trailing = trailing_zeros(difference)
    if its_leading >= leading and its_trailing >= trailing:
        at = _put_bits(0b10, 2, out, at)
        return _put_bits(shift_right(difference, trailing), 64 - leading - trailing, out, at), leading, trailing
    width = 64 - its_leading - its_trailing
    at = _put_bits(0b11, 2, out, at)
    at = _put_bits(its_leading, 5, out, at)
    at = _put_bits(width, 6, out, at)  # 64 becomes 0.
    return _put_bits(shift_right(difference, its_trailing), width, out, at), its_leading, its_trailing


@helper
def _put_bits(value: int, count: int, out: NDArray[np.uint8], at: int) -> int:
    """Write the low bits of a value, the highest first. Returns the new position in bits."""
    while count > 0:
        free = 8 - (at & 7)
        taken = min(free, count)
        part = (shift_right(value, count - taken) & ((1 << taken) - 1)) << (free - taken)
        byte = at >> 3
        out[byte] = np.uint8(part if free == 8 else out[byte] | part)
        at += taken
        count -= taken
    return at

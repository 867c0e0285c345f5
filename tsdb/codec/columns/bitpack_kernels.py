"""Bit packing: fixed-width unsigned integers, lowest bit first, one after another without gaps, padded to a byte.

Layout: docs/formats/columns.md, "Packed integers". Integers come from and go to any array of 8-byte items, seen as
int64. So a decoder unpacks them into the memory of the floats that will replace them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import shift_right
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64, load_u64, store_i64, store_u64

WIDE = 57  # From this width on, a value that starts inside a byte may reach into a ninth byte.


@helper
def packed_bytes(count: int, width: int) -> int:
    return (count * width + 7) >> 3


@helper
def pack(source: NDArray[np.int64], first: int, count: int, width: int, out: NDArray[np.uint8], pos: int) -> int:
    """Write the low `width` bits of source[first : first + count]. Returns the new position, and writes nothing beyond
    it."""
    if width == 0:
        return pos
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    word = np.uint64(0)
    filled = 0
    for index in range(first, first + count):
        value = load_u64(source, index * 8) & mask
        word |= value << np.uint64(filled)
        filled += width
        if filled >= 64:
            store_u64(out, pos, word)
            pos += 8
            filled -= 64
            # A shift by the whole word is undefined, hence the test.
            word = value >> np.uint64(width - filled) if filled else np.uint64(0)
    while filled > 0:
        out[pos] = np.uint8(word & np.uint64(255))
        word >>= np.uint64(8)
        pos += 1
        filled -= 8
    return pos


@helper
def unpack(
    data: NDArray[np.uint8], pos: int, end: int, count: int, width: int, target: NDArray[np.int64], first: int
) -> int:
    """Read count values into target[first : first + count]; the new position, negative when the values pass `end`.

    The caller checks that 0 <= width <= 64.


    """
    stop = pos + packed_bytes(count, width)
    if stop > end:
        return -1
    if width == 0:
        for index in range(first, first + count):
            store_i64(target, index * 8, 0)
        return pos
    # Whole words are loaded as long as they lie inside; the last values are put together byte by byte.
    whole = 0
    if width < WIDE and end - pos >= 8:
        whole = min(count, ((end - pos - 8) * 8 + 7) // width + 1)
        _unpack_words(data, pos, whole, width, target, first)
    for index in range(whole, count):
        store_i64(target, (first + index) * 8, _one(data, pos, index * width, width))
    return stop


@helper
def _unpack_words(
    data: NDArray[np.uint8], pos: int, count: int, width: int, target: NDArray[np.int64], first: int
) -> None:
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    bit = 0
    for index in range(first, first + count):
        word = load_u64(data, pos + (bit >> 3)) >> np.uint64(bit & 7)
        store_u64(target, index * 8, word & mask)
        bit += width


@helper
def _one(data: NDArray[np.uint8], pos: int, bit: int, width: int) -> int:
    value = got = 0
    while got < width:
        at = bit + got
        value |= (int(data[pos + (at >> 3)]) >> (at & 7)) << got
        got += 8 - (at & 7)
    return value & int(shift_right(-1, 64 - width)) if width else 0


@helper
def get_packed(data: NDArray[np.uint8], pos: int, index: int, width: int) -> int:
    """One value of a packed run whose bounds were checked."""
    return _one(data, pos, index * width, width)


@helper
def or_into(target: NDArray[np.int64], index: int, bits: int) -> None:
    store_i64(target, index * 8, load_i64(target, index * 8) | bits)

"""Blocks: unsigned integers bit-packed at the width that suits most of a block, the few larger ones patched.

Layout: docs/formats/columns.md, "Blocks". PFOR after Zukowski et al., ICDE 2006: without patches one spike would
widen its whole block, and a column that is zero but for one step would not shrink to a few bytes.

Bit packing puts unsigned integers of one width one after another without gaps, lowest bit first, padded to a byte.

Layout: docs/formats/columns.md, "Packed integers". Integers come from and go to any array of 8-byte items, seen as
int64. So a decoder unpacks them into the memory of the floats that will replace them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import bit_length, shift_right
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64, load_u64, store_i64, store_u64
from tsdb.codec.varint_kernels import get_varint, put_varint, varint_bytes

WIDE = 57  # From this width on, a value that starts inside a byte may reach into a ninth byte.

BLOCK = 32
PATCHED = 128  # flag in a block's first byte beside the width
ZERO_RUN = 64  # first byte 64 + r, 1 <= r <= 63: r blocks of zeros
ZERO_RUN_MAX = 63
HISTOGRAM = 64  # Bit lengths 0 to 63. A length of 64 counts as 63, which matters only to widths below 63.


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


@helper
def _count_lengths(source: NDArray[np.int64], first: int, count: int, histogram: NDArray[np.int64]) -> int:
    """Fill the histogram of bit lengths. Returns the longest."""
    histogram[:] = 0
    longest = 0
    for index in range(first, first + count):
        length = bit_length(source[index])
        longest = max(longest, length)
        histogram[min(length, 63)] += 1
    return longest


@helper
def _patch_bytes(count: int, width: int, longest: int, patches: int) -> int:
    where = bit_length(count - 1)
    return varint_bytes(patches) + 1 + packed_bytes(patches, where) + packed_bytes(patches, longest - width)


@helper
def _best_width(histogram: NDArray[np.int64], count: int, longest: int) -> tuple[int, int, int]:
    """(bytes after the first, width, patches) of the cheapest width."""
    best, best_width, best_patches = packed_bytes(count, longest), longest, 0
    patches = 0
    for width in range(min(longest - 1, 62), -1, -1):
        patches += histogram[width + 1]
        if patches * 4 > count and patches > 4:
            break
        size = packed_bytes(count, width) + _patch_bytes(count, width, longest, patches)
        if size < best:
            best, best_width, best_patches = size, int(width), patches
    return best, best_width, best_patches


@helper
def _write_block(
    source: NDArray[np.int64],
    first: int,
    count: int,
    width: int,
    longest: int,
    patches: int,
    out: NDArray[np.uint8],
    pos: int,
) -> int:
    out[pos] = np.uint8(width | (PATCHED if patches else 0))
    pos += 1
    if not patches:
        return pack(source, first, count, width, out, pos)
    pos = put_varint(patches, out, pos)
    out[pos] = np.uint8(longest - width)
    pos = pack(source, first, count, width, out, pos + 1)
    places, tops = np.empty(patches, np.int64), np.empty(patches, np.int64)
    found = 0
    for index in range(count):
        top = shift_right(source[first + index], width)
        if top:
            places[found], tops[found] = index, top
            found += 1
    pos = pack(places, 0, patches, bit_length(count - 1), out, pos)
    return pack(tops, 0, patches, longest - width, out, pos)


@helper
def blocks_size(source: NDArray[np.int64], count: int, block: int) -> int:
    """Bytes that write_blocks takes."""
    histogram = np.empty(HISTOGRAM, np.int64)
    size = zeros = 0
    for first in range(0, count, block):
        longest = _count_lengths(source, first, min(block, count - first), histogram)
        if longest == 0:
            size += zeros % ZERO_RUN_MAX == 0
            zeros += 1
        else:
            size += 1 + _best_width(histogram, min(block, count - first), longest)[0]
            zeros = 0
    return size


@helper
def write_blocks(source: NDArray[np.int64], count: int, block: int, out: NDArray[np.uint8], pos: int) -> int:
    """Write source[:count] in blocks of `block` values. Returns the new position."""
    histogram = np.empty(HISTOGRAM, np.int64)
    zeros = 0
    for first in range(0, count, block):
        longest = _count_lengths(source, first, min(block, count - first), histogram)
        if longest == 0:
            if zeros % ZERO_RUN_MAX == 0:
                out[pos] = ZERO_RUN
                pos += 1
            out[pos - 1] += 1
            zeros += 1
        else:
            _, width, patches = _best_width(histogram, min(block, count - first), longest)
            pos = _write_block(source, first, min(block, count - first), width, longest, patches, out, pos)
            zeros = 0
    return pos


@helper
def read_blocks(
    data: NDArray[np.uint8], pos: int, end: int, count: int, block: int, target: NDArray[np.int64], at: int
) -> int:
    """Read count values into target[at : at + count]. Returns the new position, negative when the bytes are not such
    blocks.
    """
    first = 0
    while first < count:
        if pos >= end:
            return -1
        head = int(data[pos])
        pos += 1
        if ZERO_RUN < head < PATCHED:
            stop = min(count, first + (head - ZERO_RUN) * block)
            for index in range(at + first, at + stop):
                store_i64(target, index * 8, 0)
            first = stop
            continue
        size = min(int(block), count - first)
        if head < PATCHED:
            pos = unpack(data, pos, end, size, head, target, at + first)
        else:
            pos = _read_patched(data, pos, end, size, head - PATCHED, target, at + first)
        if pos < 0:
            return pos
        first += size
    return pos


@helper
def _read_patched(
    data: NDArray[np.uint8], pos: int, end: int, count: int, width: int, target: NDArray[np.int64], at: int
) -> int:
    patches, pos = get_varint(data, pos, end)
    if pos < 0 or pos >= end or patches < 1 or patches > count:
        return -1
    top_width = int(data[pos])
    if top_width < 1 or width + top_width > 64:
        return -1
    pos = unpack(data, pos + 1, end, count, width, target, at)
    where = bit_length(count - 1)
    tops = pos + packed_bytes(patches, where)
    stop = tops + packed_bytes(patches, top_width)
    if pos < 0 or stop > end:
        return -1
    for patch in range(patches):
        index = get_packed(data, pos, patch, where)
        if index >= count:
            return -1
        or_into(target, at + index, get_packed(data, tops, patch, top_width) << width)
    return stop

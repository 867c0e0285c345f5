"""Blocks: unsigned integers bit-packed at the width that suits most of a block, the few larger ones patched.

Layout: docs/formats/columns.md, "Blocks". PFOR after Zukowski et al., ICDE 2006: without patches one spike would
widen its whole block, and a column that is zero but for one step would not shrink to a few bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import bit_length, shift_right
from tsdb.codec.columns.bitpack_kernels import get_packed, or_into, pack, packed_bytes, unpack
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import store_i64
from tsdb.codec.varint_kernels import get_varint, put_varint, varint_bytes

BLOCK = 32
PATCHED = 128  # flag in a block's first byte beside the width
ZERO_RUN = 64  # first byte 64 + r, 1 <= r <= 63: r blocks of zeros
ZERO_RUN_MAX = 63
HISTOGRAM = 64  # Bit lengths 0 to 63. A length of 64 counts as 63, which matters only to widths below 63.


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
    """Read count values into target[at : at + count]. Returns the new position, negative when the bytes are no such
    blocks."""
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

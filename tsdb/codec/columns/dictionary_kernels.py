"""Dictionary columns: store the few distinct values, of any bits, and for each sample the rank of its value by
frequency. Dense only.

Layout: docs/formats/columns.md, "Dictionary columns".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import shift_right
from tsdb.codec.columns.dense_frame_kernels import read_headed_frame, write_dense_frame
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import as_int64, load_i64, store_i64
from tsdb.codec.sort_kernels import argsort_kernel
from tsdb.codec.varint_kernels import get_varint, put_varint

# First byte. A varint of the number of entries, 8 bytes for each entry, and a headed frame of ranks follow.
DICTIONARY = 131
ENTRIES_MAX = 128
SLOTS = 512  # Slots of the hash table, a power of two well above ENTRIES_MAX.
HASH = -7046029254386353131  # 2^64 divided by the golden ratio, as an odd number.


@helper
def _rank_values(
    values: NDArray[np.float64], start: int, n: int, limit: int, ranks: NDArray[np.int64], entries: NDArray[np.int64]
) -> int:
    """Fill ranks[:n] with each value's rank in entries, most frequent first; entries used, or 0 for more than limit."""
    slots = np.full(SLOTS, -1, np.int64)
    counts = np.zeros(ENTRIES_MAX, np.int64)
    used = 0
    for index in range(n):
        bits: int = load_i64(values, (start + index) * 8)
        slot: int = shift_right(bits * HASH, 55)
        while slots[slot] >= 0 and entries[slots[slot]] != bits:
            slot = (slot + 1) & (SLOTS - 1)
        if slots[slot] < 0:
            if used == limit:
                return 0
            slots[slot] = used
            entries[used] = bits
            used += 1
        ranks[index] = slots[slot]
        counts[slots[slot]] += 1
    _rank(counts, used, ranks, n, entries)
    return used


@helper
def _rank(counts: NDArray[np.int64], used: int, ranks: NDArray[np.int64], n: int, entries: NDArray[np.int64]) -> None:
    """Order entries[:used] by falling count, those of one count as they are, and number ranks[:n] anew."""
    order, place, before = np.empty(used, np.int64), np.empty(used, np.int64), np.empty(used, np.int64)
    for entry in range(used):
        counts[entry] = -counts[entry]
        before[entry] = entries[entry]
    argsort_kernel(counts, 0, order, place)
    for rank in range(used):
        place[order[rank]] = rank
        entries[rank] = before[order[rank]]
    for index in range(n):
        ranks[index] = place[ranks[index]]


@helper
def write_dictionary(
    values: NDArray[np.float64], start: int, n: int, out: NDArray[np.uint8], bound: int, scratch: NDArray[np.int64]
) -> int:
    """Write values[start : start + n], n >= 2, to out if that takes less than bound bytes. Returns the bytes, otherwise
    -1."""
    limit = min(ENTRIES_MAX, bound // 8 - 1)
    if limit < 2:
        return -1
    entries = np.empty(ENTRIES_MAX, np.int64)
    used = _rank_values(values, start, n, limit, scratch[:n], entries)
    if used < 2:
        return -1
    out[0] = DICTIONARY
    pos = put_varint(used, out, 1)
    if pos + used * 8 >= bound:
        return -1
    for entry in range(used):
        store_i64(out, pos, entries[entry])
        pos += 8
    return write_dense_frame(scratch[:n], n, False, scratch[n : 2 * n], scratch[2 * n : 3 * n], out, pos, bound)


@helper
def read_dictionary(data: NDArray[np.uint8], pos: int, end: int, n: int, out: NDArray[np.float64], at: int) -> int:
    """Fill out[at : at + n] from the bytes after the first one. Returns the new position, or -1."""
    used, pos = get_varint(data, pos, end)
    if pos < 0 or used < 1 or used > ENTRIES_MAX or end - pos < used * 8:
        return -1
    entries = pos
    pos = read_headed_frame(data, pos + used * 8, end, n, as_int64(out), at)
    if pos < 0:
        return pos
    for index in range(at, at + n):
        rank: int = load_i64(out, index * 8)
        if rank < 0 or rank >= used:
            return -1
        store_i64(out, index * 8, load_i64(data, entries + rank * 8))
    return pos

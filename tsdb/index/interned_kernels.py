"""Interned bytes: kernels that give each distinct byte string an id, in the order of first sight.

The strings stand one after another in `data`; `ends` has the end of each and `hashes` 32 bits of its hash. `slots` is a
table of ids by hash, at most half full, NOTHING where free. Callers have reserved the capacity: nothing here grows.

Loops take their arrays out of the tuples first: numba counts a reference at each access, which made a loop over labels
3 x as slow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import copy_bytes, load_u64

NOTHING = 0xFFFFFFFF
PADDING_BYTES = 32  # Free bytes at the end of interned bytes, so that the last string can be read as a whole block.

COUNT, BYTES = 0, 1  # Indexes of Interned.size.


class Interned(NamedTuple):
    """Distinct byte strings by id. size int64[2]: number of strings, and of bytes. seed: seed of the hash."""

    size: NDArray[np.int64]
    data: NDArray[np.uint8]
    ends: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    seed: np.uint64


@helper
def hash_kernel(data: NDArray[np.uint8], start: Any, end: Any, seed: Any) -> Any:
    """A seeded 64-bit hash of data[start:end]. It multiplies and folds eight bytes at a time (after wyhash)."""
    length = end - start
    value = np.uint64(seed) ^ (np.uint64(length) * np.uint64(0x9E3779B97F4A7C15))
    if length < 8:
        tail = np.uint64(0)
        for position in range(start, end):
            tail = (tail << np.uint64(8)) | np.uint64(data[position])
        return _mix(value, tail)
    position = start
    while position + 8 < end:
        value = _mix(value, load_u64(data, position))
        position += 8
    return _mix(value, load_u64(data, end - 8))


@helper
def _mix(value: Any, word: Any) -> Any:
    mixed = (np.uint64(value) ^ np.uint64(word)) * np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(29))


@helper
def equal_kernel(
    left: NDArray[np.uint8], left_start: Any, right: NDArray[np.uint8], right_start: Any, length: Any
) -> bool:
    """Whether `length` bytes are the same."""
    at = 0
    while at + 8 <= length:
        if load_u64(left, left_start + at) != load_u64(right, right_start + at):
            return False
        at += 8
    while at < length:
        if left[left_start + at] != right[right_start + at]:
            return False
        at += 1
    return True


@helper
def _slot_of(interned: Interned, data: NDArray[np.uint8], start: Any, end: Any, hashed: Any) -> Any:
    """The slot that holds data[start:end], or the free one where it belongs."""
    slots, hashes, ends, known = interned.slots, interned.hashes, interned.ends, interned.data
    mask = slots.size - 1
    slot = np.int64(hashed) & mask
    while slots[slot] != NOTHING:
        number = np.int64(slots[slot])
        if hashes[number] == hashed:
            first = ends[number - 1] if number else np.int64(0)
            if ends[number] - first == end - start and equal_kernel(known, first, data, start, end - start):
                break
        slot = (slot + 1) & mask
    return slot


@helper
def hash32_kernel(data: NDArray[np.uint8], start: Any, end: Any, seed: Any) -> Any:
    """The upper 32 bits of hash_kernel."""
    return np.uint32(hash_kernel(data, start, end, seed) >> np.uint64(32))


@kernel
def look_up_kernel(
    interned: Interned, data: NDArray[np.uint8], ends: NDArray[np.int64], out: NDArray[np.uint32]
) -> None:
    """out (n,): id of each byte string that ends at ends[i] of data, NOTHING where it is not known."""
    start = np.int64(0)
    for index in range(ends.size):
        end = ends[index]
        out[index] = interned.slots[
            _slot_of(interned, data, start, end, hash32_kernel(data, start, end, interned.seed))
        ]
        start = end


@helper
def intern_kernel(interned: Interned, data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Id of data[start:end], a new one if it was not known."""
    hashed = hash32_kernel(data, start, end, interned.seed)
    slot = _slot_of(interned, data, start, end, hashed)
    if interned.slots[slot] != NOTHING:
        return np.int64(interned.slots[slot])
    number, first, length = interned.size[COUNT], interned.size[BYTES], end - start
    copy_bytes(interned.data, first, data, start, length)
    interned.ends[number], interned.hashes[number] = first + length, hashed
    interned.slots[slot] = number
    interned.size[COUNT], interned.size[BYTES] = number + 1, first + length
    return number


@kernel
def rehash_kernel(interned: Interned) -> None:
    """Fill empty slots with all ids."""
    slots, hashes = interned.slots, interned.hashes
    mask = slots.size - 1
    for number in range(interned.size[COUNT]):
        slot = np.int64(hashes[number]) & mask
        while slots[slot] != NOTHING:
            slot = (slot + 1) & mask
        slots[slot] = number


@helper
def fits_kernel(interned: Interned, more: Any, more_bytes: Any) -> bool:
    """Whether `more` byte strings of more_bytes in all fit, were they all new."""
    count = interned.size[COUNT] + more
    if count > interned.ends.size or count > interned.hashes.size or 2 * count > interned.slots.size:
        return False
    return bool(interned.size[BYTES] + more_bytes + PADDING_BYTES <= interned.data.size)

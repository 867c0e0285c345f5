"""Interned bytes: keeps distinct byte strings by id. Python enlarges and reads them; interned_kernels describes the
layout."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.index.interned_kernels import (
    BYTES,
    COUNT,
    NOTHING,
    PADDING_BYTES,
    Interned,
    look_up_kernel,
    rehash_kernel,
)
from tsdb.model.arrays import resized

Scalar = TypeVar("Scalar", bound=np.generic)

SLOTS_MIN = 256
GROWTH_PART = 4  # Arrays grow by a quarter more than needed: memory matters more than copies.


class InternedImage(NamedTuple):
    """Distinct byte strings: all of them joined, the end of each, and 32 bits of the hash of each."""

    data: NDArray[np.uint8]
    ends: NDArray[np.int64]
    hashes: NDArray[np.uint32]


def enlarged(array: NDArray[Scalar], size: int) -> NDArray[Scalar]:
    """`array` if it has `size` elements. Otherwise a copy that is larger than needed; its new elements are not set."""
    return array if len(array) >= size else resized(array, size + size // GROWTH_PART)


def new_interned(seed: np.uint64) -> Interned:
    """An empty table. seed: seed of its hash function."""
    arrays = np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.uint32)
    return Interned(np.zeros(2, np.int64), *arrays, np.full(SLOTS_MIN, NOTHING, np.uint32), seed)


def with_capacity(interned: Interned, more: int, more_bytes: int) -> Interned:
    """The table with capacity for `more` byte strings, as fits_kernel requires. Arrays that must grow are copied."""
    count, size = int(interned.size[COUNT]) + more, int(interned.size[BYTES]) + more_bytes + PADDING_BYTES
    grown = Interned(
        interned.size,
        enlarged(interned.data, size),
        enlarged(interned.ends, count),
        enlarged(interned.hashes, count),
        interned.slots,
        interned.seed,
    )
    if 2 * count > len(interned.slots):
        grown = grown._replace(slots=np.full(1 << (2 * count - 1).bit_length(), NOTHING, np.uint32))
        rehash_kernel(grown)
    return grown


def image_of(interned: Interned) -> InternedImage:
    """Views of a table, which stay as they are: byte strings are only added."""
    count, size = int(interned.size[COUNT]), int(interned.size[BYTES])
    return InternedImage(interned.data[:size], interned.ends[:count], interned.hashes[:count])


def interned_of(image: InternedImage, seed: np.uint64) -> Interned:
    """A table that owns the arrays of an image."""
    count, size = len(image.ends), len(image.data)
    slots = np.full(1 << max(2 * count - 1, SLOTS_MIN - 1).bit_length(), NOTHING, np.uint32)
    data = resized(image.data, size + PADDING_BYTES)
    interned = Interned(np.array([count, size], np.int64), data, image.ends, image.hashes, slots, seed)
    rehash_kernel(interned)
    return interned


def known_ids(interned: Interned, joined: bytes, ends: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Ids of the known byte strings among those that lie one after another in `joined`."""
    out = np.empty(len(ends), np.uint32)
    look_up_kernel(interned, np.frombuffer(joined, np.uint8), ends, out)
    found: NDArray[np.uint32] = out[out != NOTHING]
    return found


def starts_of(interned: Interned, numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Start of each id's bytes in `data`."""
    return np.where(numbers > 0, interned.ends[np.maximum(numbers, 1) - 1], 0)


def texts_of(interned: Interned, numbers: NDArray[Any], skip: NDArray[np.int64] | int) -> list[bytes]:
    """The bytes of each id after the first `skip`."""
    starts, ends = starts_of(interned, numbers) + skip, interned.ends[numbers]
    bounds = zip(starts.tolist(), ends.tolist(), strict=True)
    data = interned.data.data
    return [bytes(data[start:end]) for start, end in bounds]

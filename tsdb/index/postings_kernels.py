"""Postings: kernels for the pairs that few series have, which cost no Python object.

`head` of a pair says where its refs are: NOTHING (it has none), the ref itself (it has one), the newest entry of a
chain (2 to SMALL_MAX), or BITMAP: then they are not here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.index.interned_kernels import NOTHING

BITMAP = 0xFFFFFFFE
SMALL_MAX = 8  # A bitmap object with its first container takes some 170 bytes, a chain entry 8.


class Chains(NamedTuple):
    """Each pair has `head`, described above, and `held`, the number of its refs. Each entry has `ref` and `older`,
    which is NOTHING at a chain's end.

    size int64[1]: number of entries in use.
    """

    head: NDArray[np.uint32]
    held: NDArray[np.uint32]
    ref: NDArray[np.uint32]
    older: NDArray[np.uint32]
    size: NDArray[np.int64]


@kernel
def add_kernel(chains: Chains, keys: NDArray[np.uint64], segments: Array2[np.int64]) -> int:
    """Add postings to the chains. keys: pair << 32 | ref, ascending, all new. The chains have capacity for two entries
    per key.

    A pair with a bitmap, or with too many postings for a chain, is left to the caller: segments (n, 2) get the start
    and end of its keys, and `held` of the pair is updated here. Returns the number of segments.

    """
    found, start = 0, 0
    while start < keys.size:
        pair = keys[start] >> np.uint64(32)
        end = _end_of_pair(keys, start)
        in_bitmap = chains.head[pair] == BITMAP
        if in_bitmap or np.int64(chains.held[pair]) + end - start > SMALL_MAX:
            segments[found, 0], segments[found, 1] = start, end
            found += 1
            if chains.held[pair] == 1 and not in_bitmap:
                # The caller moves postings into a bitmap from a chain, so a single posting becomes a chain too.
                chains.head[pair] = _entry(chains, chains.head[pair], NOTHING)
            chains.held[pair] += np.uint32(end - start)
        else:
            for index in range(start, end):
                _add(chains, pair, np.uint32(keys[index] & np.uint64(0xFFFFFFFF)))
        start = end
    return found


@kernel
def remove_kernel(chains: Chains, keys: NDArray[np.uint64], segments: Array2[np.int64]) -> int:
    """Remove postings that all exist. keys, segments: see add_kernel. Entries of chains are not used again."""
    found, start = 0, 0
    while start < keys.size:
        pair = keys[start] >> np.uint64(32)
        end = _end_of_pair(keys, start)
        if chains.head[pair] == BITMAP:
            segments[found, 0], segments[found, 1] = start, end
            found += 1
            chains.held[pair] -= np.uint32(end - start)
        else:
            for index in range(start, end):
                _remove(chains, pair, np.uint32(keys[index] & np.uint64(0xFFFFFFFF)))
        start = end
    return found


@kernel
def collect_kernel(chains: Chains, pairs: NDArray[np.uint32], out: NDArray[np.uint32]) -> int:
    """Refs of those of pairs that have no bitmap, in no order. Returns how many."""
    count = 0
    for index in range(pairs.size):
        pair = pairs[index]
        place = chains.head[pair]
        if place in (NOTHING, BITMAP):
            continue
        if chains.held[pair] == 1:
            out[count] = place
            count += 1
            continue
        while place != NOTHING:
            out[count] = chains.ref[place]
            count += 1
            place = chains.older[place]
    return count


@helper
def _end_of_pair(keys: NDArray[np.uint64], start: Any) -> Any:
    pair = keys[start] >> np.uint64(32)
    end = start + 1
    while end < keys.size and keys[end] >> np.uint64(32) == pair:
        end += 1
    return end


@helper
def _add(chains: Chains, pair: Any, ref: Any) -> None:
    if chains.held[pair] == 0:
        chains.head[pair] = ref
    else:
        if chains.held[pair] == 1:
            chains.head[pair] = _entry(chains, chains.head[pair], NOTHING)
        chains.head[pair] = _entry(chains, ref, chains.head[pair])
    chains.held[pair] += np.uint32(1)


@helper
def _entry(chains: Chains, ref: Any, older: Any) -> Any:
    number = chains.size[0]
    chains.ref[number], chains.older[number] = ref, older
    chains.size[0] = number + 1
    return number


@helper
def _remove(chains: Chains, pair: Any, ref: Any) -> None:
    if chains.held[pair] == 1:
        chains.head[pair] = NOTHING
    else:
        place, newer = chains.head[pair], np.uint32(NOTHING)
        while chains.ref[place] != ref:
            newer, place = place, chains.older[place]
        if newer == NOTHING:
            chains.head[pair] = chains.older[place]
        else:
            chains.older[newer] = chains.older[place]
        if chains.held[pair] == 2:
            chains.head[pair] = chains.ref[chains.head[pair]]
    chains.held[pair] -= np.uint32(1)

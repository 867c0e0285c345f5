"""Postings: pair id -> the refs that have it. Called under the index's lock.

Pairs of few series stay in arrays (postings_kernels); the others are roaring bitmaps. Both are updated a batch at a
time: its (pair, ref) keys are sorted, so a pair costs one update however many of its series are in the batch.
"""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from tsdb.index.interned import enlarged
from tsdb.index.interned_kernels import NOTHING
from tsdb.index.postings_kernels import BITMAP, SMALL_MAX, Chains, add_kernel, collect_kernel, remove_kernel
from tsdb.model.arrays import total_bytes

# Measured on pyroaring 1.2: object, dictionary entry and first container; then array containers with some slack.
BITMAP_BYTES, BITMAP_BYTES_PER_REF = 250, 3


class Postings:
    """Grows with the pairs; a pair whose last ref was removed costs 8 bytes."""

    def __init__(self) -> None:
        head, held, ref, older = (np.empty(0, np.uint32) for _ in range(4))
        self._chains = Chains(head, held, ref, older, np.zeros(1, np.int64))
        self._pair_count = 0
        self._bitmaps: dict[int, BitMap] = {}
        self._refs_in_bitmaps = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory; the share of the bitmaps is estimated."""
        arrays = total_bytes(self._chains)
        return arrays + BITMAP_BYTES * len(self._bitmaps) + BITMAP_BYTES_PER_REF * self._refs_in_bitmaps

    def counts(self) -> NDArray[np.uint32]:
        """Number of refs of each pair, by pair id; a view that changes with later updates."""
        return self._chains.held[: self._pair_count]

    def add(self, pairs: NDArray[np.uint32], refs: NDArray[np.uint32], pair_count: int) -> None:
        """Add distinct (pair, ref) that are not in the postings. Pair ids are below pair_count."""
        self._reserve(pair_count, len(pairs))
        keys = _keys(pairs, refs)
        segments = np.empty((len(keys), 2), np.int64)
        found = add_kernel(self._chains, keys, segments)
        for pair, some in _by_pair(keys, segments[:found]):
            bitmap = self._bitmaps.get(pair)
            self._refs_in_bitmaps += len(some)
            if bitmap is None:
                self._bitmaps[pair] = BitMap(some) | self._promoted(pair)
            else:
                bitmap.update(some)

    def remove(self, pairs: NDArray[np.uint32], refs: NDArray[np.uint32]) -> None:
        """Remove distinct (pair, ref) that are all in the postings."""
        keys = _keys(pairs, refs)
        segments = np.empty((len(keys), 2), np.int64)
        found = remove_kernel(self._chains, keys, segments)
        for pair, some in _by_pair(keys, segments[:found]):
            bitmap = self._bitmaps[pair]
            bitmap -= BitMap(some)
            self._refs_in_bitmaps -= len(some)
            if not bitmap:
                del self._bitmaps[pair]
                self._chains.head[pair] = NOTHING

    def union(self, pairs: NDArray[np.uint32]) -> BitMap:
        """A new bitmap of the refs that have any of these distinct pairs."""
        large = [bitmap for bitmap in map(self._bitmaps.get, pairs.tolist()) if bitmap is not None]
        if len(large) == len(pairs) == 1:
            return large[0].copy()
        chained = self._chained(pairs)
        return BitMap.union(BitMap(array("I", chained.tobytes())), *large)

    def _chained(self, pairs: NDArray[np.uint32]) -> NDArray[np.uint32]:
        out = np.empty(SMALL_MAX * len(pairs), np.uint32)
        return out[: collect_kernel(self._chains, pairs, out)]

    def _promoted(self, pair: int) -> BitMap:
        """Move the refs of a pair's chain into a new bitmap."""
        chained = self._chained(np.array([pair], np.uint32))
        self._refs_in_bitmaps += len(chained)
        self._chains.head[pair] = BITMAP
        return BitMap(array("I", chained.tobytes()))

    def _reserve(self, pair_count: int, more: int) -> None:
        head, held, ref, older, size = self._chains
        entries = int(size[0]) + 2 * more
        head, held = enlarged(head, pair_count), enlarged(held, pair_count)
        head[self._pair_count : pair_count] = NOTHING
        held[self._pair_count : pair_count] = 0
        self._pair_count = max(self._pair_count, pair_count)
        self._chains = Chains(head, held, enlarged(ref, entries), enlarged(older, entries), size)


def _keys(pairs: NDArray[np.uint32], refs: NDArray[np.uint32]) -> NDArray[np.uint64]:
    return np.sort(pairs.astype(np.uint64) << np.uint64(32) | refs)


def _by_pair(keys: NDArray[np.uint64], segments: NDArray[np.int64]) -> list[tuple[int, array[int]]]:
    """(pair, refs) of each segment, refs as bitmaps take them fastest."""
    refs = array("I", keys.astype(np.uint32).tobytes())
    pairs = (keys[segments[:, 0]] >> np.uint64(32)).tolist()
    return [(pair, refs[start:end]) for pair, (start, end) in zip(pairs, segments.tolist(), strict=True)]

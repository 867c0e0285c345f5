"""Pack sources: the source of each row of a request, by the row's pack. A pack is part of one source.

The series table has no sources. The labels of a pack that is not known are placed once more; all others are look-ups.
Used only while sources have limits. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

PACKS_MAX = 500_000  # About 100 B each.
UNKNOWN = -1

Place = Callable[[NDArray[np.int64]], NDArray[np.uint32]]
"""Rows of the request, all valid -> the hash of the source of each."""


class PackSources:
    """Source hashes of at most `packs_max` packs, and of one request's more; then all are forgotten."""

    def __init__(self, packs_max: int = PACKS_MAX) -> None:
        self._packs_max = packs_max
        self._lock = threading.Lock()  # Guards _source_of; an innermost lock.
        self._source_of: dict[int, int] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._source_of)

    def of(self, pack_ids: NDArray[np.uint64], good: NDArray[np.bool_], place: Place) -> NDArray[np.uint32]:
        """uint32 (rows,), source of each good row; 0 of the others."""
        rows = np.flatnonzero(good)
        packs, first, of_row = np.unique(pack_ids[rows], return_index=True, return_inverse=True)
        with self._lock:
            known = map(self._source_of.get, packs.tolist(), repeat(UNKNOWN))
            found = np.fromiter(known, np.int64, len(packs))
        missing = np.flatnonzero(found == UNKNOWN)
        if len(missing):
            found[missing] = place(rows[first[missing]])
            self._add(packs[missing], found[missing])
        sources = np.zeros(len(pack_ids), np.uint32)
        sources[rows] = found[of_row]
        return sources

    def _add(self, packs: NDArray[np.uint64], sources: NDArray[np.int64]) -> None:
        with self._lock:
            if len(self._source_of) + len(packs) > self._packs_max:
                self._source_of.clear()
            self._source_of.update(zip(packs.tolist(), sources.tolist(), strict=True))

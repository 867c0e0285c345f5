"""Series generation: a set of 64-bit keys: hash of the source in the upper half, of the series in the lower half.

Each series takes 8 bytes and no label text. Two series of one source with equal lower halves count once: about one in
100,000.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

RECENT_MIN = 8192
RECENT_PART = 8  # Recent keys are merged when there is one for 8 others, so that each key is moved few times.
SOURCE_SHIFT = np.uint64(32)
_SERIES_MASK = np.uint64(0xFFFFFFFF)


def keys_of(source: NDArray[np.uint32], series_id: NDArray[np.uint64]) -> Keys:
    """One key for each series, in the given order."""
    return source.astype(np.uint64) << SOURCE_SHIFT | series_id & _SERIES_MASK


class SeriesGeneration:
    """A large sorted array, and a small one for added keys. A look-up searches both."""

    def __init__(self, keys: Keys | None = None) -> None:
        self._main = np.empty(0, np.uint64) if keys is None else keys
        self._recent = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._main) + len(self._recent)

    @property
    def nbytes(self) -> int:
        """Memory of the keys, in bytes."""
        return self._main.nbytes + self._recent.nbytes

    def has(self, keys: Keys) -> NDArray[np.bool_]:
        """Whether each key is held."""
        return _is_in(self._main, keys) | _is_in(self._recent, keys)

    def add(self, keys: Keys) -> None:
        """Add distinct keys that are not in the set yet."""
        self._recent = _merged(self._recent, keys)
        if len(self._recent) > max(RECENT_MIN, len(self._main) // RECENT_PART):
            self._main, self._recent = self.all(), np.empty(0, np.uint64)

    def all(self) -> Keys:
        """All keys in ascending order."""
        return _merged(self._main, self._recent)

    def count_of(self, sources: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Number of keys of each source."""
        first, end = sources << SOURCE_SHIFT, sources << SOURCE_SHIFT | _SERIES_MASK
        counts = np.zeros(len(sources), np.int64)
        for held in (self._main, self._recent):
            counts += np.searchsorted(held, end, side="right") - np.searchsorted(held, first)
        return counts


def _is_in(held: Keys, keys: Keys) -> NDArray[np.bool_]:
    if not len(held):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(held, keys), len(held) - 1)
    found: NDArray[np.bool_] = held[places] == keys
    return found


def _merged(left: Keys, right: Keys) -> Keys:
    # A stable sort detects the two sorted runs and merges them.
    return np.sort(np.concatenate((left, right)), kind="stable")

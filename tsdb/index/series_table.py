"""Series table: series_id -> ref, the one look-up that every sample of a new pack goes through.

One writer thread inserts and removes. Any thread may look up in `arrays` taken once: growth makes new arrays and leaves
the old ones as they were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.index.series_table_kernels import NO_REF, copy_live_kernel, find_kernel, remove_kernel

SLOTS_MIN = 1024
LOAD_MAX = 0.6  # With linear probing a hit takes 1.8 probes and a miss 3.6. Both rise steeply above it.
LOAD_REBUILT = 0.45  # A rebuilt table has capacity until the next rebuild, even if removed slots had filled it.


class SeriesIdTable:
    """Open addressing over series ids; see series_table_kernels for the layout."""

    def __init__(self) -> None:
        self._live = 0
        self._arrays, self._used = _empty(SLOTS_MIN)

    def __len__(self) -> int:
        return self._live

    @property
    def arrays(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """(keys, refs) for find_kernel, of one power of two; take both at once."""
        return self._arrays

    @property
    def used(self) -> NDArray[np.int64]:
        """int64[1], slots that are not free: for a kernel that inserts into `arrays` after `reserve`."""
        return self._used

    @property
    def nbytes(self) -> int:
        return self._arrays[0].nbytes + self._arrays[1].nbytes

    def find(self, ids: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """The ref of each id, NO_REF for an unknown id."""
        refs = np.empty(len(ids), np.uint32)
        find_kernel(*self._arrays, ids, refs)
        return refs

    def reserve(self, more: int) -> None:
        """Reserve capacity for `more` inserts. May replace `arrays`."""
        keys, refs = self._arrays
        if int(self._used[0]) + more <= LOAD_MAX * refs.size:
            return
        slots = SLOTS_MIN
        while LOAD_REBUILT * slots < self._live + more:
            slots *= 2
        arrays, used = _empty(slots)
        copy_live_kernel(keys, refs, *arrays, used)
        self._arrays, self._used = arrays, used

    def inserted(self, count: int) -> None:
        """Count `count` ids that a kernel inserted into `arrays` after `reserve`."""
        self._live += count

    @classmethod
    def of(cls, ids: NDArray[np.uint64], refs: NDArray[np.uint32]) -> SeriesIdTable:
        """A table of distinct ids with their refs."""
        table = cls()
        table.reserve(len(ids))
        copy_live_kernel(ids, refs, *table.arrays, table.used)
        table.inserted(len(ids))
        return table

    def remove(self, ids: NDArray[np.uint64]) -> int:
        """Remove the ids that are in the table. Returns their number."""
        removed = int(remove_kernel(*self._arrays, ids))
        self._live -= removed
        return removed


def _empty(slots: int) -> tuple[tuple[NDArray[np.uint64], NDArray[np.uint32]], NDArray[np.int64]]:
    return (np.empty(slots, np.uint64), np.full(slots, NO_REF, np.uint32)), np.zeros(1, np.int64)

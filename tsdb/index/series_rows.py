"""Series rows: the columns and the state of each ref. The writer thread changes them under the index's lock."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.index.index_kernels import (
    FREE_COUNT,
    REFS_SIZE,
    STATE_FORGOTTEN,
    STATE_FREE,
    FreeRefs,
    SeriesColumns,
)
from tsdb.index.interned import enlarged
from tsdb.model.arrays import total_bytes


class RowsImage(NamedTuple):
    """Series rows by ref, as SeriesColumns has them; free and forgotten: refs in these states, in the order of use."""

    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    family: NDArray[np.uint32]
    announced_ms: NDArray[np.int64]
    state: NDArray[np.uint8]
    free: NDArray[np.uint32]
    forgotten: NDArray[np.uint32]


class SeriesRows:
    """A ref goes free, live, forgotten, free. The forgotten state is for readers that found the ref just before."""

    def __init__(self) -> None:
        self.columns = SeriesColumns(
            np.empty(0, np.uint64),
            np.empty(0, np.uint64),
            np.empty(0, np.uint32),
            np.empty(0, np.int64),
            np.empty(0, np.uint8),
        )
        self.free = FreeRefs(np.zeros(2, np.int64), np.empty(0, np.uint32))
        self._forgotten = np.empty(0, np.uint32)

    @property
    def size(self) -> int:
        """One past the highest ref ever used."""
        return int(self.free.size[REFS_SIZE])

    @property
    def nbytes(self) -> int:
        """Bytes of columns and lists."""
        return total_bytes(self.columns) + self.free.refs.nbytes + self._forgotten.nbytes

    def reserve(self, more: int) -> int:
        """Reserve capacity for `more` new refs; returns the highest `size` that is then possible. May replace
        `columns`."""
        size = self.size + max(0, more - int(self.free.size[FREE_COUNT]))
        if size > len(self.columns.state):
            series_id, pack_id, family, announced_ms, state = self.columns
            self.columns = SeriesColumns(
                enlarged(series_id, size),
                enlarged(pack_id, size),
                enlarged(family, size),
                enlarged(announced_ms, size),
                enlarged(state, size),
            )
            self.columns.state[self.size :] = STATE_FREE
        return size

    def in_state(self, state: int) -> NDArray[np.uint32]:
        """Refs in a state, ascending."""
        return np.flatnonzero(self.columns.state[: self.size] == state).astype(np.uint32)

    def layout_order(self, refs: NDArray[np.uint32]) -> NDArray[np.intp]:
        """The permutation that sorts refs by (family, pack, suffix of the family, ref).

        Families and packs ascend by hash. This keeps each together, and the layout needs no more.
        """
        family = self.columns.family[refs].astype(np.uint64)
        pack = self.columns.pack_id[refs] >> np.uint64(32)
        keys = (family >> np.uint64(3)) << np.uint64(35) | pack << np.uint64(3) | family & np.uint64(7)
        if (refs[1:] > refs[:-1]).all():
            return np.argsort(keys, kind="stable")
        return np.lexsort((refs, keys))

    def forget(self, refs: NDArray[np.uint32]) -> None:
        """Mark live refs as forgotten, so that reads no longer find them. Their rows stay until `release`."""
        self.columns.state[refs] = STATE_FORGOTTEN
        self._forgotten = np.concatenate((self._forgotten, refs))

    def release(self) -> int:
        """Forgotten refs become free for new series. Returns how many."""
        count, more = int(self.free.size[FREE_COUNT]), self._forgotten
        refs = enlarged(self.free.refs, count + len(more))
        refs[count : count + len(more)] = more
        self.columns.state[more] = STATE_FREE
        self.free = FreeRefs(self.free.size, refs)
        self.free.size[FREE_COUNT] = count + len(more)
        self._forgotten = np.empty(0, np.uint32)
        return len(more)

    def image(self) -> RowsImage:
        """A copy; the writer thread calls it."""
        series_id, pack_id, family, announced_ms, state = self.columns
        size, free = self.size, self.free.refs[: self.free.size[FREE_COUNT]]
        return RowsImage(
            series_id[:size].copy(),
            pack_id[:size].copy(),
            family[:size].copy(),
            announced_ms[:size].copy(),
            state[:size].copy(),
            free.copy(),
            self._forgotten.copy(),
        )

    @classmethod
    def of(cls, image: RowsImage) -> SeriesRows:
        """Rows that own the arrays of an image."""
        rows = cls()
        rows.columns = SeriesColumns(image.series_id, image.pack_id, image.family, image.announced_ms, image.state)
        rows.free = FreeRefs(np.array([len(image.state), len(image.free)], np.int64), image.free)
        rows._forgotten = image.forgotten
        return rows

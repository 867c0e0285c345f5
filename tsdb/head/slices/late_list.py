"""Late list: samples whose slice is sealed or gone, or below coverage, each with the offset of its record.

It has the shape and the owner of an open slice: the apply kernel appends, and entries are chained per series. Reads
merge the entries. Maintenance removes the entries of one interval to fold them into a sealed slice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.head.slices.address_kernels import address_of
from tsdb.head.slices.images import LateImage
from tsdb.head.slices.late_kernels import group_kernel, relink_kernel
from tsdb.head.slices.open_slice import ENTRIES_MAX
from tsdb.head.slices.rows import (
    LATE_CAPACITY,
    LATE_COLUMNS,
    LATE_COUNT,
    LATE_LAST,
    LATE_LAST_SIZE,
    LATE_ORDER,
    LATE_PREV,
    LATE_REF,
    LATE_TS,
    LATE_VALUE,
)
from tsdb.model.arrays import resized
from tsdb.model.errors import Overloaded

CAPACITY_MIN = 4096
ENTRY_BYTES = 32


class LateList:
    """Entries in the order of their application. row: the int64 row that kernels read and in which they count."""

    def __init__(self) -> None:
        self.row: NDArray[np.int64] = np.zeros(LATE_COLUMNS, np.int64)
        self._ref = np.empty(CAPACITY_MIN, np.uint32)
        self._ts = np.empty(CAPACITY_MIN, np.int64)
        self._value = np.empty(CAPACITY_MIN, np.float64)
        self._order = np.empty(CAPACITY_MIN, np.int64)
        self._prev = np.empty(CAPACITY_MIN, np.uint32)
        self._last = np.zeros(1, np.uint32)
        self.cuts = 0
        """Number of removals of entries; see Contents.taken_out."""
        self._refresh()

    @property
    def count(self) -> int:
        return int(self.row[LATE_COUNT])

    @property
    def bytes(self) -> int:
        return self.count * ENTRY_BYTES + self._last.nbytes

    @property
    def ts_ms(self) -> NDArray[np.int64]:
        """Timestamps of the entries, a view: valid until the list changes."""
        return self._ts[: self.count]

    @property
    def orders(self) -> NDArray[np.int64]:
        """Offsets of the entries' records, ascending; a view."""
        return self._order[: self.count]

    @property
    def values(self) -> NDArray[np.float64]:
        """Values of the entries, as a view."""
        return self._value[: self.count]

    @property
    def refs(self) -> NDArray[np.uint32]:
        """Refs of the entries; a view."""
        return self._ref[: self.count]

    def marked(self, refs_size: int) -> NDArray[np.bool_]:
        """Whether the list has a sample of a ref, for each ref below refs_size."""
        found = np.zeros(refs_size, np.bool_)
        size = min(refs_size, len(self._last))
        found[:size] = self._last[:size] != 0
        return found

    def grow(self) -> None:
        """Double the capacity for entries. Raises Overloaded (late_full) above ENTRIES_MAX."""
        capacity = 2 * len(self._ref)
        if capacity > ENTRIES_MAX:
            raise Overloaded(f"late list has {self.count} samples; limit is {ENTRIES_MAX}", reason="late_full")
        self._ref = resized(self._ref, capacity)
        self._ts = resized(self._ts, capacity)
        self._value = resized(self._value, capacity)
        self._order = resized(self._order, capacity)
        self._prev = resized(self._prev, capacity)
        self._refresh()

    def grow_last(self, refs_size: int) -> None:
        """Enlarge the arrays for refs below refs_size, with a quarter in reserve."""
        grown = np.zeros(refs_size + refs_size // 4, np.uint32)
        grown[: len(self._last)] = self._last
        self._last = grown
        self._refresh()

    def keep(self, wanted: NDArray[np.bool_]) -> None:
        """Keep only the entries with `wanted`, bool (count,)."""
        self.cuts += 1
        kept = int(wanted.sum())
        capacity = max(CAPACITY_MIN, kept + kept // 4)
        self._ref = resized(self.refs[wanted], capacity)
        self._ts = resized(self.ts_ms[wanted], capacity)
        self._value = resized(self.values[wanted], capacity)
        self._order = resized(self.orders[wanted], capacity)
        self._prev = np.empty(capacity, np.uint32)
        self._last = np.zeros(len(self._last), np.uint32)
        self.row[LATE_COUNT] = kept
        relink_kernel(self._ref, self._prev, self._last, kept)
        self._refresh()

    def image(self) -> LateImage:
        """Views of the entries: they never change, and arrays that grow are replaced."""
        return LateImage(self.refs, self.ts_ms, self.values, self.orders)

    def restore(self, image: LateImage, refs_size: int) -> None:
        """Take the entries of an image, all of refs below refs_size."""
        count = len(image.ref)
        capacity = max(CAPACITY_MIN, count + count // 4)
        self._ref, self._ts = resized(image.ref, capacity), resized(image.ts_ms, capacity)
        self._value, self._order = resized(image.value, capacity), resized(image.order, capacity)
        self._prev, self._last = np.empty(capacity, np.uint32), np.zeros(max(refs_size, 1), np.uint32)
        self.row[LATE_COUNT] = count
        relink_kernel(self._ref, self._prev, self._last, count)
        self._refresh()

    def _refresh(self) -> None:
        row = self.row
        row[LATE_CAPACITY], row[LATE_LAST_SIZE] = len(self._ref), len(self._last)
        row[LATE_REF], row[LATE_TS], row[LATE_VALUE] = (address_of(a) for a in (self._ref, self._ts, self._value))
        row[LATE_ORDER], row[LATE_PREV] = address_of(self._order), address_of(self._prev)
        row[LATE_LAST] = address_of(self._last)


def grouped(group: NDArray[np.int64], groups: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(starts (groups + 1,), order (n,)): the positions in group g are order[starts[g]:starts[g + 1]], ascending."""
    starts, order = np.zeros(groups + 1, np.int64), np.empty(len(group), np.int64)
    group_kernel(group, starts, order)
    return starts, order

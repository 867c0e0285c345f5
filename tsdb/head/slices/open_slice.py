"""Open slices: append logs of samples in any arrival order, one per stretch of sample time that still takes samples.

Owned by the head's writer thread, which changes them under the head's lock; readers gather under the same lock. A slice
that takes no more samples is only read until it is sealed and closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.slices.address_kernels import address_of
from tsdb.head.slices.images import OpenImage
from tsdb.head.slices.late_kernels import relink_kernel
from tsdb.head.slices.rows import (
    OPEN_CAPACITY,
    OPEN_COLUMNS,
    OPEN_COUNT,
    OPEN_END,
    OPEN_LAST,
    OPEN_LAST_SIZE,
    OPEN_NEWEST_BROKER,
    OPEN_NEWEST_OFFSET,
    OPEN_PREV,
    OPEN_REF,
    OPEN_START,
    OPEN_TS,
    OPEN_VALUE,
    Rows,
)
from tsdb.model.arrays import resized
from tsdb.model.errors import Overloaded

CAPACITY_MIN = 4096
ENTRIES_MAX = (1 << 32) - 2  # The chains have 32 bits for a position plus one.
ENTRY_BYTES = 20


@dataclass(slots=True)
class _Columns:
    """The arrays of one slice: entries (ref, ts in the slice, value, prev) and the newest entry per ref."""

    ref: NDArray[np.uint32]
    ts: NDArray[np.int32]
    value: NDArray[np.float64]
    prev: NDArray[np.uint32]
    last: NDArray[np.uint32]


class OpenSlices:
    """The open slices of a head, ascending by start. rows[:count]: the rows that kernels read and in which they
    count."""

    def __init__(self, slice_ms: int) -> None:
        self._slice_ms = slice_ms
        self._columns: list[_Columns] = []
        self.rows: Rows = np.zeros((8, OPEN_COLUMNS), np.int64)
        self._usual_entries = CAPACITY_MIN
        self.closes = 0
        """Number of closed slices. Entries leave in no other way."""

    @property
    def count(self) -> int:
        return len(self._columns)

    @property
    def entries(self) -> int:
        """Samples in all open slices, including replaced ones."""
        return int(self.rows[: self.count, OPEN_COUNT].sum())

    @property
    def bytes(self) -> int:
        """Memory in use. Reserved pages that were never touched take none."""
        return self.entries * ENTRY_BYTES + sum(columns.last.nbytes for columns in self._columns)

    def start_ms(self, row: int) -> int:
        return int(self.rows[row, OPEN_START])

    def refs(self, row: int) -> NDArray[np.uint32]:
        """Series with a sample in a slice, ascending by ref."""
        return np.flatnonzero(self._columns[row].last).astype(np.uint32)

    def marked(self, refs_size: int) -> NDArray[np.bool_]:
        """Whether any open slice has a sample of a ref, for each ref below refs_size."""
        found = np.zeros(refs_size, np.bool_)
        for columns in self._columns:
            size = min(refs_size, len(columns.last))
            found[:size] |= columns.last[:size] != 0
        return found

    def open(self, start_ms: int, refs_size: int) -> None:
        """Open the slice at start_ms, for refs below refs_size at first."""
        row = int(np.searchsorted(self.rows[: self.count, OPEN_START], start_ms))
        if self.count == len(self.rows):
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
        self.rows[row + 1 : self.count + 1] = self.rows[row : self.count]
        capacity = self._usual_entries
        # Untouched pages cost no memory, so it is free to reserve the usual size of a slice.
        columns = _Columns(
            np.empty(capacity, np.uint32),
            np.empty(capacity, np.int32),
            np.empty(capacity, np.float64),
            np.empty(capacity, np.uint32),
            np.zeros(max(refs_size, 1), np.uint32),
        )
        self._columns.insert(row, columns)
        self.rows[row] = 0
        self.rows[row, OPEN_START], self.rows[row, OPEN_END] = start_ms, start_ms + self._slice_ms
        self.rows[row, OPEN_NEWEST_OFFSET] = self.rows[row, OPEN_NEWEST_BROKER] = np.iinfo(np.int64).min
        self._refresh(row)

    def grow(self, row: int) -> None:
        """Double the capacity for entries. Raises Overloaded (slice_full) above ENTRIES_MAX."""
        columns = self._columns[row]
        capacity = 2 * len(columns.ref)
        if capacity > ENTRIES_MAX:
            raise Overloaded(
                f"slice at {self.start_ms(row)} ms has {len(columns.ref)} samples; limit is {ENTRIES_MAX}:"
                " use shorter slices or more partitions",
                reason="slice_full",
            )
        columns.ref = resized(columns.ref, capacity)
        columns.ts = resized(columns.ts, capacity)
        columns.value = resized(columns.value, capacity)
        columns.prev = resized(columns.prev, capacity)
        self._refresh(row)

    def grow_last(self, row: int, refs_size: int) -> None:
        """Enlarge the arrays for refs below refs_size, and a quarter more."""
        columns = self._columns[row]
        grown = np.zeros(refs_size + refs_size // 4, np.uint32)
        grown[: len(columns.last)] = columns.last
        columns.last = grown
        self._refresh(row)

    def close(self, row: int) -> None:
        """Remove a slice that was sealed or dropped."""
        self.closes += 1
        entries = int(self.rows[row, OPEN_COUNT])
        self._usual_entries = max(CAPACITY_MIN, entries + entries // 8)
        del self._columns[row]
        self.rows[row : self.count] = self.rows[row + 1 : self.count + 1]

    @property
    def usual_entries(self) -> int:
        """Number of entries that a new slice reserves."""
        return self._usual_entries

    def images(self) -> tuple[OpenImage, ...]:
        """Views of all slices, ascending: entries never change, and arrays that grow are replaced."""
        found = []
        for columns, row in zip(self._columns, self.rows[: self.count].tolist(), strict=True):
            count = row[OPEN_COUNT]
            entries = columns.ref[:count], columns.ts[:count], columns.value[:count]
            found.append(OpenImage(row[OPEN_START], row[OPEN_NEWEST_OFFSET], row[OPEN_NEWEST_BROKER], *entries))
        return tuple(found)

    def restore(self, images: tuple[OpenImage, ...], refs_size: int, usual_entries: int) -> None:
        """Open the slices of images, all of refs below refs_size."""
        self._usual_entries = usual_entries
        for row, image in enumerate(images):
            self.open(image.start_ms, refs_size)
            count = len(image.ref)
            while len(self._columns[row].ref) < count:
                self.grow(row)
            columns = self._columns[row]
            columns.ref[:count], columns.ts[:count], columns.value[:count] = image.ref, image.ts, image.value
            relink_kernel(columns.ref, columns.prev, columns.last, count)
            self.rows[row, OPEN_COUNT] = count
            self.rows[row, OPEN_NEWEST_OFFSET] = image.newest_offset
            self.rows[row, OPEN_NEWEST_BROKER] = image.newest_broker_ms

    def _refresh(self, row: int) -> None:
        columns, target = self._columns[row], self.rows[row]
        target[OPEN_CAPACITY], target[OPEN_LAST_SIZE] = len(columns.ref), len(columns.last)
        target[OPEN_REF], target[OPEN_TS] = address_of(columns.ref), address_of(columns.ts)
        target[OPEN_VALUE], target[OPEN_PREV] = address_of(columns.value), address_of(columns.prev)
        target[OPEN_LAST] = address_of(columns.last)

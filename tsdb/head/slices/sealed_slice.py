"""Sealed slice: keeps an immutable stretch of sample time as compressed columns, which readers share by reference.

Columns are in layout order (family, placement, series), so that series that are read together are neighbours. Time axes
are stored once for all series that share them. A slice may contain late samples, each with its record's offset. When
the slice is dropped, the late samples from since_offset on are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.head.slices.address_kernels import address_of
from tsdb.head.slices.rows import (
    SEALED_AXES,
    SEALED_AXIS_COUNT,
    SEALED_AXIS_DATA,
    SEALED_AXIS_DATA_SIZE,
    SEALED_AXIS_END,
    SEALED_AXIS_OF,
    SEALED_COLUMN_END,
    SEALED_COLUMNS,
    SEALED_DATA,
    SEALED_DATA_SIZE,
    SEALED_END,
    SEALED_ORDER_DATA,
    SEALED_ORDER_DATA_SIZE,
    SEALED_ORDER_END,
    SEALED_REFS,
    SEALED_SLOT_OF,
    SEALED_SLOT_OF_SIZE,
    SEALED_SLOTS,
    SEALED_START,
    Rows,
)

OBJECT_BYTES = 2048  # Rough size of the Python objects and array headers of one slice.


@dataclass(frozen=True, slots=True, eq=False)
class SealedSlice:
    """Samples of [start_ms, end_ms). Arrays are never written after construction.

    column_end (n,) uint32: end of column `slot` in data; axis_of (n,) uint32: its time axis. axis_end, axis_count (a,)
    uint32: end of each axis in axis_data, and its samples. refs: ascending refs (n,), and slot_of their slots. Or refs
    is None, and slot_of has slot + 1 for each ref, 0 for no slot. order_end (n,) uint32, order_data: offsets of late
    samples, or None. newest_offset, newest_broker_ms: offset and broker time of the newest record in the slice.
    order_max: highest offset of a late sample in it, NOT_LATE (-1) without any.
    """

    start_ms: int
    end_ms: int
    samples: int
    column_end: NDArray[np.uint32]
    axis_of: NDArray[np.uint32]
    data: NDArray[np.uint8]
    axis_end: NDArray[np.uint32]
    axis_count: NDArray[np.uint32]
    axis_data: NDArray[np.uint8]
    refs: NDArray[np.uint32] | None
    slot_of: NDArray[np.uint32]
    order_end: NDArray[np.uint32] | None
    order_data: NDArray[np.uint8]
    newest_offset: int
    newest_broker_ms: int
    order_max: int
    row: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        row = np.zeros(SEALED_COLUMNS, np.int64)
        row[SEALED_START], row[SEALED_END], row[SEALED_SLOTS] = self.start_ms, self.end_ms, len(self.column_end)
        row[SEALED_COLUMN_END], row[SEALED_AXIS_OF] = address_of(self.column_end), address_of(self.axis_of)
        row[SEALED_DATA], row[SEALED_DATA_SIZE] = address_of(self.data), len(self.data)
        row[SEALED_AXES], row[SEALED_AXIS_END] = len(self.axis_end), address_of(self.axis_end)
        row[SEALED_AXIS_COUNT] = address_of(self.axis_count)
        row[SEALED_AXIS_DATA], row[SEALED_AXIS_DATA_SIZE] = address_of(self.axis_data), len(self.axis_data)
        row[SEALED_REFS] = 0 if self.refs is None else address_of(self.refs)
        row[SEALED_SLOT_OF], row[SEALED_SLOT_OF_SIZE] = address_of(self.slot_of), len(self.slot_of)
        row[SEALED_ORDER_END] = 0 if self.order_end is None else address_of(self.order_end)
        row[SEALED_ORDER_DATA], row[SEALED_ORDER_DATA_SIZE] = address_of(self.order_data), len(self.order_data)
        object.__setattr__(self, "row", row)

    @property
    def columns(self) -> int:
        """Number of series that have a sample in the slice."""
        return len(self.column_end)

    @property
    def series(self) -> NDArray[np.uint32]:
        """Refs with a column, ascending."""
        return np.flatnonzero(self.slot_of).astype(np.uint32) if self.refs is None else self.refs

    @property
    def payload_bytes(self) -> int:
        """Encoded bytes: columns and axes."""
        return len(self.data) + len(self.axis_data)

    @property
    def bytes(self) -> int:
        return self.payload_bytes + self.directory_bytes + len(self.order_data)

    @property
    def directory_bytes(self) -> int:
        """Memory of the arrays that locate columns and axes, and of the Python objects."""
        arrays = (
            self.column_end,
            self.axis_of,
            self.axis_end,
            self.axis_count,
            self.slot_of,
            self.refs,
            self.order_end,
        )
        return OBJECT_BYTES + sum(array.nbytes for array in arrays if array is not None)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SealedSlices:
    """The sealed slices of a head at one moment.

    sealed: rows of disjoint slices, ascending, at or above coverage. below: rows of slices of late samples below
    coverage, in creation order; they may overlap, and the later one wins. slices: keeps the memory behind the rows.
    """

    sealed: Rows
    below: Rows
    slices: tuple[object, ...] = ()


def rows_of(slices: tuple[SealedSlice, ...]) -> Rows:
    """The table that kernels walk, in the order of the slices; valid while they are referenced."""
    if not slices:
        return np.zeros((0, SEALED_COLUMNS), np.int64)
    return np.stack([slice_.row for slice_ in slices])

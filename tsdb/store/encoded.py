"""Encoded columns: the sealed part of a COLUMNS answer, encoded as its messages carry it.

Sealed slices never change, so the same series give the same columns while a head holds the same slices. They are
gathered and encoded once.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from tsdb.head.read.gather import SealedColumns, Touched
from tsdb.head.slices.sealed_slice import SealedSlices
from tsdb.reader.frames import column_frames


@dataclass(frozen=True, slots=True, eq=False)
class EncodedColumns:
    """Columns of some slices of `held`. frames: ColumnsFrame messages. payload_bytes: bytes of the arrays in them."""

    held: weakref.ref[
        SealedSlices
    ]  # Weak: a remembered answer must not keep slices in memory that the head has dropped.
    touched: Touched
    frames: tuple[bytes, ...]
    samples: int
    payload_bytes: int

    @classmethod
    def of(cls, partition: int, held: SealedSlices, touched: Touched, columns: SealedColumns) -> EncodedColumns:
        """Encode the columns. Arrays are copied."""
        frames = tuple(frame.joined() for frame in column_frames(partition, columns))
        return cls(weakref.ref(held), touched, frames, columns.samples, columns.payload_bytes)

    @property
    def bytes(self) -> int:
        return sum(map(len, self.frames))

    def is_of(self, held: SealedSlices, start_ms: int, end_ms: int) -> bool:
        """Whether gathering [start_ms, end_ms) from these slices would give the same columns."""
        return self.held() is held and self.touched.touches_the_same(start_ms, end_ms)

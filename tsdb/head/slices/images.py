"""Images: the parts of a head's contents at one moment, as arrays and numbers that never change.

They share memory with the head: open slices, the late list and the ring only append to their arrays, or replace them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.head.details import DetailBucket
from tsdb.head.slices.sealed_slice import SealedSlice
from tsdb.head.state import Hole
from tsdb.model.details import SampleDetails


class OpenImage(NamedTuple):
    """An open slice: its entries in the order in which they were appended; ts (n,) in ms from start_ms. newest_*: see
    rows.py."""

    start_ms: int
    newest_offset: int
    newest_broker_ms: int
    ref: NDArray[np.uint32]
    ts: NDArray[np.int32]
    value: NDArray[np.float64]


class LateImage(NamedTuple):
    """The late list: its entries in the order applied."""

    ref: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    order: NDArray[np.int64]


class RingImage(NamedTuple):
    """A ring: all samples in the order applied. Batch i ends before sample ends[i], with the record last_offsets[i]; it
    begins with the record first_offsets[i]. lost_through: the newest record that is not in the ring. details: None
    where no sample has any."""

    lost_through: int
    first_offsets: NDArray[np.int64]
    last_offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    ref: NDArray[np.uint32]
    offset: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    details: SampleDetails | None = None


class ContentsImage(NamedTuple):
    """Image of Contents, with the same names. usual_entries: the usual size of an open slice. details: see
    HeadDetails.image."""

    since_offset: int
    next_offset: int
    applied_offset: int | None
    from_start: bool
    clock: tuple[int, int, int]
    holes: tuple[Hole, ...]
    usual_entries: int
    open: tuple[OpenImage, ...]
    late: LateImage
    ring: RingImage
    sealed: tuple[SealedSlice, ...]
    below: tuple[SealedSlice, ...]
    details: tuple[DetailBucket, ...] = ()

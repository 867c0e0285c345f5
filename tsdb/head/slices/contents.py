"""Contents: all samples of one head, and the lock that guards them.

Only the writer thread changes anything, always under the lock. Other threads read under the lock, or work on
`SealedSlices`, a snapshot that never changes. The writer may read without the lock.
"""

from __future__ import annotations

import threading
from itertools import count

import numpy as np
from numpy.typing import NDArray

from tsdb.head.details import HeadDetails
from tsdb.head.holes import Holes
from tsdb.head.slices.images import ContentsImage
from tsdb.head.slices.late_list import LateList
from tsdb.head.slices.open_slice import OpenSlices
from tsdb.head.slices.ring import Ring
from tsdb.head.slices.rows import CLOCK_COVERAGE, CLOCK_OPEN_FROM, CLOCK_WATERMARK
from tsdb.head.slices.sealed_slice import SealedSlice, SealedSlices, rows_of
from tsdb.head.state import HeadLimits, HeadState
from tsdb.model.time_set import SliceLengths

NEVER_MS = int(np.iinfo(np.int64).min)  # Watermark before the first record.
_CHANGES = count(0, 1 << 48)  # Start values are so far apart that two Contents never share one.


class Contents:
    """Open slices, sealed slices and the late list of one head, with their offsets, watermark and coverage.

    sealed: disjoint slices with samples at or above coverage, ascending. below: slices of late samples below coverage,
    in the order they were made. clock: watermark, start of the first slice that may take samples, coverage.
    """

    def __init__(
        self,
        slices: SliceLengths,
        limits: HeadLimits,
        *,
        coverage_start_ms: int,
        since_offset: int,
        from_start: bool,
    ) -> None:
        # Guards everything here and the refs of the label index. Under it only the index's own lock is taken.
        self.lock = threading.RLock()
        self.slices = slices
        self.limits = limits
        self.open = OpenSlices(slices.small_ms)
        self.late = LateList()
        self.holes = Holes(limits.holes_max)
        self.ring = Ring(limits.ring_samples_max, since_offset)
        self.details = HeadDetails(slices.large_ms)
        self.clock: NDArray[np.int64] = np.array([NEVER_MS, NEVER_MS, coverage_start_ms], np.int64)
        self.since_offset = since_offset
        self.next_offset = since_offset
        self.applied_offset: int | None = None
        self.from_start = from_start
        self.sealed: tuple[SealedSlice, ...] = ()
        self.below: tuple[SealedSlice, ...] = ()
        self.held = SealedSlices(rows_of(()), rows_of(()))
        # Summed when slices change, because memory checks and metrics read the sums often.
        self.sealed_samples = self.sealed_bytes = 0
        self._below_samples = self._below_bytes = 0
        self._changes = next(_CHANGES)
        self._state = (-1, self._state_now())

    @property
    def watermark_ms(self) -> int | None:
        """Running maximum of broker time applied."""
        watermark = int(self.clock[CLOCK_WATERMARK])
        return None if watermark == NEVER_MS else watermark

    @property
    def coverage_start_ms(self) -> int:
        """Sample time from here on is complete."""
        return int(self.clock[CLOCK_COVERAGE])

    @property
    def open_from_ms(self) -> int:
        """Start of the first slice that takes samples."""
        return int(self.clock[CLOCK_OPEN_FROM])

    @property
    def samples(self) -> int:
        """Samples in memory, including replaced ones in open slices and the late list."""
        return self.open.entries + self.late.count + self.sealed_samples + self._below_samples

    @property
    def bytes(self) -> int:
        """Memory of slices, late list, ring and details."""
        slices = self.open.bytes + self.late.bytes + self.sealed_bytes + self._below_bytes
        return slices + self.ring.bytes + self.details.bytes

    @property
    def taken_out(self) -> int:
        """Counter of removals from open slices and the late list. While it is unchanged, both only grow."""
        return self.open.closes + self.late.cuts

    @property
    def changes(self) -> int:
        """Counter of all changes that a read can see. Two Contents never have the same value."""
        return self._changes + self.open.closes + self.late.cuts

    @property
    def is_held(self) -> bool:
        """Whether another thread has the lock now, so that a read would wait."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
            return False
        return True

    def change_locked(self) -> None:
        """Count a change. Removals from open slices and the late list are counted by taken_out."""
        self._changes += 1

    def state(self) -> HeadState:
        """The state now, or before a change in progress. Takes the lock only after a change."""
        changes, state = self._state  # One tuple, replaced as a whole, so reading it needs no lock.
        if changes == self._changes + self.open.closes + self.late.cuts:  # As `changes`: each read asks each head.
            return state
        with self.lock:
            return self.state_locked()

    def state_locked(self) -> HeadState:
        """The state now. It stays the same object until something changes, because every response of a store reads
        it."""
        if self._state[0] != self.changes:
            self._state = (self.changes, self._state_now())
        return self._state[1]

    def _state_now(self) -> HeadState:
        return HeadState(
            since_offset=self.since_offset,
            coverage_start_ms=self.coverage_start_ms,
            watermark_ms=self.watermark_ms,
            applied_offset=self.applied_offset,
            next_offset=self.next_offset,
            from_start=self.from_start,
            holes=self.holes.all,
        )

    def swap_locked(self, sealed: tuple[SealedSlice, ...], below: tuple[SealedSlice, ...]) -> None:
        """Replace all sealed slices."""
        self.change_locked()
        self.sealed = tuple(sorted(sealed, key=lambda slice_: slice_.start_ms))
        self.below = below
        self.held = SealedSlices(rows_of(self.sealed), rows_of(self.below), (self.sealed, self.below))
        self.sealed_samples, self.sealed_bytes = _sums(self.sealed)
        self._below_samples, self._below_bytes = _sums(self.below)

    def add_sealed_locked(self, slice_: SealedSlice, instead_of: tuple[SealedSlice, ...] = ()) -> None:
        """Add a slice at or above coverage, in place of the slices `instead_of`."""
        gone = set(map(id, instead_of))
        self.swap_locked((*(kept for kept in self.sealed if id(kept) not in gone), slice_), self.below)

    def raise_coverage_locked(self, coverage_start_ms: int, since_offset: int) -> None:
        """Raise coverage and since_offset (never lower them). Drops holes below; the head is from_start no longer."""
        self.change_locked()
        self.clock[CLOCK_COVERAGE] = max(self.coverage_start_ms, coverage_start_ms)
        self.since_offset = max(self.since_offset, since_offset)
        self.from_start = False
        self.holes.drop(self.coverage_start_ms, self.since_offset)
        self.details.drop_locked(self.coverage_start_ms, self.since_offset)

    def image(self) -> ContentsImage:
        """An image of everything now. The writer thread calls it."""
        watermark_ms, open_from_ms, coverage_ms = self.clock.tolist()
        return ContentsImage(
            since_offset=self.since_offset,
            next_offset=self.next_offset,
            applied_offset=self.applied_offset,
            from_start=self.from_start,
            clock=(watermark_ms, open_from_ms, coverage_ms),
            holes=self.holes.all,
            usual_entries=self.open.usual_entries,
            open=self.open.images(),
            late=self.late.image(),
            ring=self.ring.image(),
            sealed=self.sealed,
            below=self.below,
            details=self.details.image(),
        )

    def restore(self, image: ContentsImage, refs_size: int) -> None:
        """Restore what an image shows, before the first record. All refs are below refs_size."""
        assert self.applied_offset is None, "only empty contents can be restored"
        with self.lock:
            self.since_offset, self.next_offset = image.since_offset, image.next_offset
            self.applied_offset, self.from_start = image.applied_offset, image.from_start
            self.clock[:] = image.clock
            self.holes.add(list(image.holes))
            self.open.restore(image.open, refs_size, image.usual_entries)
            self.late.restore(image.late, refs_size)
            self.ring.restore(image.ring)
            self.swap_locked(image.sealed, image.below)
            self.details.restore(image.details)

    def marked(self, refs_size: int) -> NDArray[np.bool_]:
        """Whether slices, late list or ring have a sample of a ref, for each ref below refs_size."""
        found = self.open.marked(refs_size) | self.late.marked(refs_size)
        for slice_ in (*self.sealed, *self.below):
            found[slice_.series] = True
        found[self.ring.refs()] = True
        return found


def _sums(slices: tuple[SealedSlice, ...]) -> tuple[int, int]:
    """(samples, bytes) of all slices together."""
    return sum(slice_.samples for slice_ in slices), sum(slice_.bytes for slice_ in slices)

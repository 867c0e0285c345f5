"""Ring: keeps the newest applied records of one head, for readers that follow the log live.

Written by the head's writer thread and read by any, both under the head's lock; arrays handed out never change.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.slices.images import RingImage
from tsdb.head.slices.ring_kernels import visible_kernel
from tsdb.head.slices.rows import IGNORED_REF
from tsdb.model.errors import OutOfCoverage

JOINED_PART = 16  # A joined batch is at most this part of the ring.
SAMPLE_BYTES = 28


@dataclass(frozen=True, slots=True)
class RingBatch:
    """Samples of consecutive records, in the order of their application. All arrays are (n,): ref, record offset, time,
    value.

    first_offset, last_offset: the first and last record, with or without samples.

    """

    first_offset: int
    last_offset: int
    refs: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def with_capacity(cls, samples: int, first_offset: int, last_offset: int) -> RingBatch:
        """A batch of `samples` samples, not yet filled in."""
        refs, offsets = np.empty(samples, np.uint32), np.empty(samples, np.int64)
        return cls(first_offset, last_offset, refs, offsets, np.empty(samples, np.int64), np.empty(samples, np.float64))

    def after(self, record_offset: int) -> RingBatch:
        """The part that belongs to records past record_offset."""
        if record_offset < self.first_offset:
            return self
        keep = int(np.searchsorted(self.offsets, record_offset, side="right"))
        return RingBatch(
            record_offset + 1,
            self.last_offset,
            self.refs[keep:],
            self.offsets[keep:],
            self.ts_ms[keep:],
            self.values[keep:],
        )


class Ring:
    """Keeps the newest batches, at most samples_max samples. since_offset: the first record it can hold."""

    def __init__(self, samples_max: int, since_offset: int) -> None:
        self._samples_max = samples_max
        self._batches: deque[RingBatch] = deque()
        self._samples = 0
        self._lost_through = since_offset - 1  # Records up to this offset are no longer in the ring, or never were.

    @property
    def bytes(self) -> int:
        return self._samples * SAMPLE_BYTES

    def append(
        self,
        first_offset: int,
        record_offsets: NDArray[np.int64],
        sample_start: NDArray[np.int64],
        refs: NDArray[np.uint32],
        ts_ms: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        """Add records, in order; record i has the samples [sample_start[i], sample_start[i + 1]) of the arrays.

        first_offset: one past the last record added before; offsets between the two belong to no record.
        """
        end = int(sample_start[-1])
        # Only whole records go, because a reader resumes behind a record, never inside it.
        skip = int(sample_start.searchsorted(end - self._samples_max))
        if skip:
            self._batches.clear()
            self._samples = 0
            self._lost_through = int(record_offsets[skip - 1])
            first_offset = self._lost_through + 1
        visible = int(np.count_nonzero(refs[sample_start[skip] : end] < IGNORED_REF))
        batch = RingBatch.with_capacity(visible, first_offset, int(record_offsets[-1]))
        to = batch.refs, batch.offsets, batch.ts_ms, batch.values
        visible_kernel(record_offsets, sample_start, skip, refs, ts_ms, values, *to)
        self._batches.append(batch)
        self._samples += visible
        self._drop_old()
        self._merge_small()

    def refs(self) -> NDArray[np.uint32]:
        """Refs of all samples, with repeats."""
        return np.concatenate([np.empty(0, np.uint32), *(batch.refs for batch in self._batches)])

    def since(self, record_offset: int) -> list[RingBatch]:
        """Batches of the records past record_offset, ascending. Raises OutOfCoverage (watch_ring) if some are gone."""
        if record_offset < self._lost_through:
            raise OutOfCoverage(
                f"the ring holds the records after {self._lost_through}; requested those after {record_offset}",
                reason="watch_ring",
                held_after_offset=self._lost_through,
                asked_after_offset=record_offset,
            )
        found: list[RingBatch] = []
        for batch in reversed(self._batches):
            if batch.last_offset <= record_offset:
                break
            found.append(batch.after(record_offset))
        return found[::-1]

    def image(self) -> RingImage:
        """A copy of all batches."""
        batches = list(self._batches)
        first, last = ([getattr(batch, name) for batch in batches] for name in ("first_offset", "last_offset"))
        return RingImage(
            self._lost_through,
            np.array(first, np.int64),
            np.array(last, np.int64),
            np.cumsum([len(batch.refs) for batch in batches], dtype=np.int64),
            self.refs(),
            np.concatenate([np.empty(0, np.int64), *(batch.offsets for batch in batches)]),
            np.concatenate([np.empty(0, np.int64), *(batch.ts_ms for batch in batches)]),
            np.concatenate([np.empty(0, np.float64), *(batch.values for batch in batches)]),
        )

    def restore(self, image: RingImage) -> None:
        """Take the batches of an image; a smaller ring keeps the newest."""
        start = 0
        for first, last, end in zip(image.first_offsets, image.last_offsets, image.ends.tolist(), strict=True):
            refs, offsets = image.ref[start:end], image.offset[start:end]
            ts_ms, values = image.ts_ms[start:end], image.value[start:end]
            self._batches.append(RingBatch(int(first), int(last), refs, offsets, ts_ms, values))
            start = end
        self._samples, self._lost_through = start, image.lost_through
        self._drop_old()

    def _drop_old(self) -> None:
        while self._samples > self._samples_max:
            gone = self._batches.popleft()
            self._samples -= len(gone.refs)
            self._lost_through = gone.last_offset

    def _merge_small(self) -> None:
        """Join the two newest batches while the older is not larger. Batches stay few; a sample is copied few times.

        A joined batch stays a small part of the ring, because the ring drops whole batches.
        """
        while len(self._batches) > 1:
            old, new = self._batches[-2], self._batches[-1]
            joined = len(old.refs) + len(new.refs)
            if len(old.refs) > len(new.refs) or joined > self._samples_max // JOINED_PART:
                return
            self._batches.pop()
            self._batches.pop()
            self._batches.append(
                RingBatch(
                    old.first_offset,
                    new.last_offset,
                    np.concatenate([old.refs, new.refs]),
                    np.concatenate([old.offsets, new.offsets]),
                    np.concatenate([old.ts_ms, new.ts_ms]),
                    np.concatenate([old.values, new.values]),
                )
            )

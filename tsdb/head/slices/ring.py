"""Ring: keeps the newest applied records of one head, for readers that follow the log live.

Written by the head's writer thread and read by any, both under the head's lock; arrays handed out never change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.head.slices.images import RingImage
from tsdb.head.slices.ring_kernels import visible_kernel
from tsdb.head.slices.rows import IGNORED_REF
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import OutOfCoverage

JOINED_PART = 16  # A joined batch is at most this part of the ring.
SAMPLE_BYTES = 28
DETAIL_BYTES = 256  # Bytes of details that a ring may have for each sample that it may have.


@dataclass(frozen=True, slots=True)
class RingBatch:
    """Samples of consecutive records, in the order of their application. All arrays are (n,): ref, record offset, time,
    value. details: None where no sample has any.

    first_offset, last_offset: the first and last record, with or without samples.

    """

    first_offset: int
    last_offset: int
    refs: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    details: SampleDetails | None = None

    @property
    def detail_bytes(self) -> int:
        """Bytes of the details."""
        return 0 if self.details is None else self.details.nbytes

    @classmethod
    def with_capacity(
        cls, samples: int, first_offset: int, last_offset: int, details: SampleDetails | None = None
    ) -> RingBatch:
        """A batch of `samples` samples, not yet filled in, with these details."""
        refs, offsets = np.empty(samples, np.uint32), np.empty(samples, np.int64)
        ts_ms, values = np.empty(samples, np.int64), np.empty(samples, np.float64)
        return cls(first_offset, last_offset, refs, offsets, ts_ms, values, details)

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
            self.details and self.details.part(keep, len(self.refs)),
        )

    def pieces(self, detail_bytes_max: int) -> Iterator[RingBatch]:
        """The same records in order, in batches with at most detail_bytes_max of details, or of one record."""
        last = len(self.offsets) and int(self.offsets[-1])
        if self.detail_bytes <= detail_bytes_max or last == int(self.offsets[0]):
            yield self
            return
        half = min(int(self.offsets[len(self.offsets) // 2]), last - 1)
        yield from self._through(half).pieces(detail_bytes_max)
        yield from self.after(half).pieces(detail_bytes_max)

    def _through(self, record_offset: int) -> RingBatch:
        """The part that belongs to records up to record_offset."""
        keep = int(np.searchsorted(self.offsets, record_offset, side="right"))
        columns = self.refs[:keep], self.offsets[:keep], self.ts_ms[:keep], self.values[:keep]
        return RingBatch(self.first_offset, record_offset, *columns, self.details and self.details.part(0, keep))


class Ring:
    """Keeps the newest batches, at most samples_max samples and DETAIL_BYTES times as many bytes of details.
    since_offset: the first record it can hold."""

    def __init__(self, samples_max: int, since_offset: int) -> None:
        self._samples_max = samples_max
        self._batches: deque[RingBatch] = deque()
        self._samples = self._detail_bytes = 0
        self._lost_through = since_offset - 1  # Records up to this offset are no longer in the ring, or never were.

    @property
    def bytes(self) -> int:
        return self._samples * SAMPLE_BYTES + self._detail_bytes

    def append(
        self,
        first_offset: int,
        record_offsets: NDArray[np.int64],
        sample_start: NDArray[np.int64],
        refs: NDArray[np.uint32],
        ts_ms: NDArray[np.int64],
        values: NDArray[np.float64],
        details: SampleDetails | None = None,
    ) -> None:
        """Add records, in order; record i has the samples [sample_start[i], sample_start[i + 1]) of the arrays.
        details: those of the same arrays.

        first_offset: one past the last record added before; offsets between the two belong to no record.
        """
        end = int(sample_start[-1])
        # Only whole records go, because a reader resumes behind a record, never inside it.
        skip = int(sample_start.searchsorted(end - self._samples_max))
        if skip:
            self._batches.clear()
            self._samples = self._detail_bytes = 0
            self._lost_through = int(record_offsets[skip - 1])
            first_offset = self._lost_through + 1
        first = int(sample_start[skip])
        visible = int(np.count_nonzero(refs[first:end] < IGNORED_REF))
        if details is not None:
            details = details.take(first + np.flatnonzero(refs[first:end] < IGNORED_REF))
        batch = RingBatch.with_capacity(visible, first_offset, int(record_offsets[-1]), details)
        to = batch.refs, batch.offsets, batch.ts_ms, batch.values
        visible_kernel(record_offsets, sample_start, skip, refs, ts_ms, values, *to)
        self._batches.append(batch)
        self._samples += visible
        self._detail_bytes += batch.detail_bytes
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
            joined_details([(len(batch.refs), batch.details) for batch in batches]),
        )

    def restore(self, image: RingImage) -> None:
        """Take the batches of an image; a smaller ring keeps the newest."""
        start = 0
        for first, last, end in zip(image.first_offsets, image.last_offsets, image.ends.tolist(), strict=True):
            refs, offsets = image.ref[start:end], image.offset[start:end]
            ts_ms, values = image.ts_ms[start:end], image.value[start:end]
            details = image.details and image.details.part(start, end)
            self._batches.append(RingBatch(int(first), int(last), refs, offsets, ts_ms, values, details))
            start = end
        self._detail_bytes = sum(batch.detail_bytes for batch in self._batches)
        self._samples, self._lost_through = start, image.lost_through
        self._drop_old()

    def _drop_old(self) -> None:
        while self._samples > self._samples_max or self._detail_bytes > self._samples_max * DETAIL_BYTES:
            gone = self._batches.popleft()
            self._samples -= len(gone.refs)
            self._detail_bytes -= gone.detail_bytes
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
            if old.detail_bytes + new.detail_bytes > self._samples_max * DETAIL_BYTES // JOINED_PART:
                return
            self._batches.pop()
            self._batches.pop()
            details = joined_details([(len(old.refs), old.details), (len(new.refs), new.details)])
            self._detail_bytes -= old.detail_bytes + new.detail_bytes
            self._batches.append(
                RingBatch(
                    old.first_offset,
                    new.last_offset,
                    np.concatenate([old.refs, new.refs]),
                    np.concatenate([old.offsets, new.offsets]),
                    np.concatenate([old.ts_ms, new.ts_ms]),
                    np.concatenate([old.values, new.values]),
                    details,
                )
            )
            self._detail_bytes += self._batches[-1].detail_bytes

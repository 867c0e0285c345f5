"""Head details: keeps start timestamps and histograms of the samples of one head.

The samples lie in slices and the late list like all others, a histogram by its sum. A head whose samples have no
details has nothing here, and pays a comparison a batch. Entries are found by series and time. Of one time the entry
that was applied last counts, as of samples: so a series that has details has an entry for each later sample, also for
one without them.

The writer thread changes the entries under the head's lock. A view of them never changes. Entries of times that take no
more samples are packed: their details are bytes, in blocks that a read decodes where it needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import Admit, RawResult, flat
from tsdb.codec.columns.details import EncodedDetails, Section, decode_details
from tsdb.model.arrays import joined_ranges
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.histograms import HistogramShape

WAITING_MIN = 1024  # Entries of a bucket that wait before they are sorted into the others.
COPIES = 2  # Of entries that are found: joined, and the newest of each time in the order of the series.
BLOCK_ENTRIES = 1024  # Entries that a read decodes together, but for a series that has more.
BLOCK_BYTES = 200  # Rough size of the objects of a section.
ROW_BYTES = 28  # Bytes of an entry beside its details.
BUCKET_BYTES = 1024  # Rough size of the objects and array headers of a bucket.


@dataclass(frozen=True, slots=True, eq=False)
class DetailEntries:
    """n samples. refs: uint32 (n,). ts_ms, orders: int64 (n,), the order is the offset of the record. values: float64
    (n,). details: None where no sample has any."""

    refs: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64]
    details: SampleDetails | None

    def __len__(self) -> int:
        return len(self.refs)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, and of the shapes."""
        size, details = ROW_BYTES * len(self.refs), self.details
        if details is None:
            return size
        shapes = () if details.histograms is None else details.histograms.shapes
        return size + details.nbytes + sum(map(_shape_bytes, shapes))

    def take(self, rows: NDArray[np.int64]) -> DetailEntries:
        """The samples with these indexes."""
        columns = self.refs[rows], self.ts_ms[rows], self.values[rows], self.orders[rows]
        return DetailEntries(*columns, self.details and self.details.take(rows))

    def newest(self) -> DetailEntries:
        """The last one of each (ref, time), by ref and time."""
        return self.take(newest_rows(self.refs, self.ts_ms))


def newest_rows(series: NDArray[np.integer[Any]], ts_ms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indexes of samples by series and time; of equal ones the last."""
    rows = np.lexsort((ts_ms, series))  # Stable, so of equal keys the one applied last comes last.
    of, at_ms = series[rows], ts_ms[rows]
    is_last = np.ones(len(rows), np.bool_)
    is_last[:-1] = (of[1:] != of[:-1]) | (at_ms[1:] != at_ms[:-1])
    return rows[is_last]


@dataclass(frozen=True, slots=True, eq=False)
class PackedEntries:
    """Entries by ref and time, each once, with their details as bytes. blocks: details of stretches of entries that
    begin with a series; each is (first entry, end, sections, bucket counts)."""

    refs: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64]
    blocks: tuple[tuple[int, int, tuple[Section, ...], int], ...]

    @classmethod
    def of(cls, entries: DetailEntries) -> PackedEntries:
        blocks = []
        starts = np.append(np.flatnonzero(np.diff(entries.refs, prepend=entries.refs[:1] + 1)), len(entries))
        first = 0
        while first < len(starts) - 1:
            last = int(np.searchsorted(starts, starts[first] + BLOCK_ENTRIES, side="right")) - 1
            last = min(max(last, first + 1), len(starts) - 1)
            low, high = int(starts[first]), int(starts[last])
            details = entries.details and entries.details.part(low, high)
            if details is not None:
                given = entries.ts_ms[low:high], entries.values[low:high], starts[first : last + 1] - low
                sections = EncodedDetails(details, *given, dense=False).sections(0, last - first)
                counts = 0 if details.histograms is None else len(details.histograms.buckets)
                blocks.append((low, high, tuple(sections), counts))
            first = last
        return cls(entries.refs, entries.ts_ms, entries.values, entries.orders, tuple(blocks))

    def __len__(self) -> int:
        return len(self.refs)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays and of the blocks."""
        packed = sum(BLOCK_BYTES + len(data) for _, _, sections, _ in self.blocks for _, data in sections)
        return ROW_BYTES * len(self.refs) + packed

    def take(self, rows: NDArray[np.int64]) -> DetailEntries:
        """The samples with these indexes, which ascend."""
        parts: list[tuple[int, SampleDetails | None]] = []
        done = 0
        for low, high, sections, counts in self.blocks:
            first, last = np.searchsorted(rows, (low, high)).tolist()
            if first == last:
                continue
            block = self.refs[low:high]
            starts = np.append(np.flatnonzero(np.diff(block, prepend=block[:1] + 1)), high - low)
            given = self.ts_ms[low:high].copy(), self.values[low:high].copy(), starts
            details = decode_details(sections, *given, bucket_counts_max=counts)
            parts += [(first - done, None), (last - first, details.take(rows[first:last] - low))]
            done = last
        parts.append((len(rows) - done, None))
        columns = self.refs[rows], self.ts_ms[rows], self.values[rows], self.orders[rows]
        return DetailEntries(*columns, joined_details(parts))

    def entries(self) -> DetailEntries:
        """All of them, decoded."""
        return self.take(np.arange(len(self.refs)))


def joined_entries(parts: Sequence[DetailEntries]) -> DetailEntries:
    """The samples of all parts, one part after another."""
    if len(parts) == 1:
        return parts[0]
    return DetailEntries(
        flat([part.refs for part in parts], np.uint32),
        flat([part.ts_ms for part in parts], np.int64),
        flat([part.values for part in parts], np.float64),
        flat([part.orders for part in parts], np.int64),
        joined_details([(len(part), part.details) for part in parts]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class DetailBucket:
    """Entries of one stretch of time: `kept` by ref and time, each once, then `waiting` in the order applied. It never
    changes."""

    kept: DetailEntries | PackedEntries
    waiting: tuple[DetailEntries, ...]
    nbytes: int

    @classmethod
    def of(cls, kept: DetailEntries | PackedEntries) -> DetailBucket:
        return cls(kept, (), BUCKET_BYTES + kept.nbytes)

    def plus(self, entries: DetailEntries) -> DetailBucket:
        waiting = (*self.waiting, entries)
        if sum(map(len, waiting)) < max(WAITING_MIN, len(self.kept)):
            return DetailBucket(self.kept, waiting, self.nbytes + entries.nbytes)
        return DetailBucket.of(DetailBucket(self.kept, waiting, 0).whole())

    def whole(self) -> DetailEntries:
        """All entries by ref and time, each once."""
        kept = self.kept.entries() if isinstance(self.kept, PackedEntries) else self.kept
        return joined_entries((kept, *self.waiting)).newest() if self.waiting else kept

    @property
    def is_packed(self) -> bool:
        """Whether the details of all entries are bytes."""
        return isinstance(self.kept, PackedEntries) and not self.waiting

    def packed(self) -> DetailBucket:
        """The same entries, with their details as bytes."""
        return self if self.is_packed else DetailBucket.of(PackedEntries.of(self.whole()))

    def of_series(self, refs: NDArray[np.uint32]) -> Iterable[DetailEntries]:
        """The entries of some series, in an order in which the last one of a time counts. refs: ascending."""
        low, high = (np.searchsorted(self.kept.refs, refs, side) for side in ("left", "right"))
        counts = high - low
        if counts.any():
            yield self.kept.take(joined_ranges(low, counts))
        for one in self.waiting:
            rows = np.flatnonzero(np.isin(one.refs, refs))
            if len(rows):
                yield one.take(rows)


_NO_ENTRIES = DetailEntries(
    np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.int64), None
)


@dataclass(frozen=True, slots=True, eq=False)
class DetailsView:
    """All entries at one moment, by the start of their bucket."""

    bucket_ms: int
    buckets: dict[int, DetailBucket]

    def of(
        self, refs: NDArray[np.uint32], start_ms: int, end_ms: int, admit: Admit = lambda size: None
    ) -> RawResult | None:
        """The samples of [start_ms, end_ms) that have entries, in the order of refs, each time once; None where none of
        them has details. refs: none comes twice. admit: called before the entries are copied."""
        by_ref = np.argsort(refs)
        wanted = refs[by_ref]
        touched = [
            bucket
            for first_ms, bucket in self.buckets.items()
            if first_ms < end_ms and start_ms < first_ms + self.bucket_ms
        ]
        parts = [part for bucket in touched for part in bucket.of_series(wanted)]
        if not parts:
            return None
        admit(COPIES * sum(part.nbytes for part in parts))
        every = joined_entries(parts)
        rows = np.flatnonzero((every.ts_ms >= start_ms) & (every.ts_ms < end_ms))
        place = by_ref[np.searchsorted(wanted, every.refs[rows])]
        order = newest_rows(place, every.ts_ms[rows])
        found = every.take(rows[order])
        if found.details is None:
            return None
        counts = np.bincount(place[order], minlength=len(refs)).astype(np.uint32)
        return RawResult(counts, found.ts_ms, found.values, details=found.details)


def with_detailed(overlay: RawResult, detailed: RawResult) -> RawResult:
    """The samples of both, which have the same series; of equal times those with details."""
    series = np.concatenate([np.repeat(np.arange(len(one.counts)), one.counts) for one in (overlay, detailed)])
    ts_ms = np.concatenate((overlay.ts_ms, detailed.ts_ms))
    rows = newest_rows(series, ts_ms)
    details = joined_details([(overlay.samples, overlay.details), (detailed.samples, detailed.details)])
    return RawResult(
        np.bincount(series[rows], minlength=len(overlay.counts)).astype(np.uint32),
        ts_ms[rows],
        np.concatenate((overlay.values, detailed.values))[rows],
        details=details and details.take(rows),
    )


class HeadDetails:
    """bucket_ms: length of the stretches of time by which entries are kept and dropped."""

    def __init__(self, bucket_ms: int) -> None:
        self._bucket_ms = bucket_ms
        self._has = np.zeros(0, np.bool_)  # Whether a series has had details, by ref.
        self._buckets: dict[int, DetailBucket] = {}
        self._unpacked: dict[int, DetailBucket] = {}  # Past ones of the last round of `pack`.
        self.bytes = 0

    @property
    def is_used(self) -> bool:
        """Whether samples need entries although they have no details."""
        return bool(len(self._has))

    def add_locked(
        self,
        refs: NDArray[np.uint32],
        ts_ms: NDArray[np.int64],
        values: NDArray[np.float64],
        orders: NDArray[np.int64],
        details: SampleDetails | None,
    ) -> None:
        """Add applied samples of known series, in order."""
        if details is not None:
            has = _has_details(details, len(refs))
            if has.any():
                self._mark(refs[has])
        if not self.is_used:
            return
        rows = np.flatnonzero(refs < len(self._has))
        rows = rows[self._has[refs[rows]]]
        columns = refs[rows], ts_ms[rows], values[rows], orders[rows]
        self._add(DetailEntries(*columns, details and details.take(rows)))

    def drop_locked(self, coverage_ms: int, since_offset: int) -> None:
        """Drop the entries below coverage_ms of records below since_offset."""
        for start_ms, bucket in list(self._buckets.items()):
            if start_ms >= coverage_ms:
                continue
            keeps = [
                (part.ts_ms >= coverage_ms) | (part.orders >= since_offset) for part in (bucket.kept, *bucket.waiting)
            ]
            if all(part.all() for part in keeps):
                continue
            self.bytes -= bucket.nbytes
            del self._buckets[start_ms]
            if any(part.any() for part in keeps):
                whole = bucket.whole()
                rows = np.flatnonzero((whole.ts_ms >= coverage_ms) | (whole.orders >= since_offset))
                if len(rows):
                    left = self._buckets[start_ms] = DetailBucket.of(whole.take(rows))
                    self.bytes += left.nbytes

    def pack(self, before_ms: int, lock: AbstractContextManager[object]) -> None:
        """Pack the entries of the stretches that end by before_ms and have not changed since the last call. Only the
        swap needs the lock."""
        before, self._unpacked = self._unpacked, {}
        for start_ms, bucket in list(self._buckets.items()):
            if start_ms + self._bucket_ms > before_ms or bucket.is_packed:
                continue
            if before.get(start_ms) is not bucket:
                # Late samples come many at a time, and each pack of a bucket costs all its entries.
                self._unpacked[start_ms] = bucket
                continue
            packed = bucket.packed()
            with lock:
                self._buckets[start_ms] = packed
                self.bytes += packed.nbytes - bucket.nbytes

    def forget_locked(self, refs: NDArray[np.uint32]) -> None:
        """Forget series that have no samples, before others use their refs."""
        self._has[refs[refs < len(self._has)]] = False

    def view_locked(self) -> DetailsView | None:
        """The entries now; None without any."""
        return DetailsView(self._bucket_ms, dict(self._buckets)) if self._buckets else None

    def bytes_between(self, start_ms: int, end_ms: int) -> int:
        """Bytes of the entries of [start_ms, end_ms), in whole buckets."""
        return sum(
            bucket.nbytes
            for first_ms, bucket in self._buckets.items()
            if first_ms < end_ms and start_ms < first_ms + self._bucket_ms
        )

    def image(self) -> tuple[DetailBucket, ...]:
        """All entries now, in stretches of time. They never change."""
        return tuple(self._buckets[start_ms] for start_ms in sorted(self._buckets))

    def restore(self, image: tuple[DetailBucket, ...]) -> None:
        """Restore an image, before the first sample."""
        assert not self._buckets, "only an empty head can be restored"
        for bucket in image:
            entries = bucket.whole()
            self._mark(entries.refs)
            self._add(entries)

    def _mark(self, refs: NDArray[np.uint32]) -> None:
        size = int(refs.max(initial=0)) + 1
        if size > len(self._has):
            grown = np.zeros(size + size // 4, np.bool_)
            grown[: len(self._has)] = self._has
            self._has = grown
        self._has[refs] = True

    def _add(self, entries: DetailEntries) -> None:
        starts = entries.ts_ms - entries.ts_ms % self._bucket_ms
        for start_ms in np.unique(starts).tolist():
            part = entries.take(np.flatnonzero(starts == start_ms))
            before = self._buckets.get(start_ms)
            bucket = (before or DetailBucket.of(_NO_ENTRIES)).plus(part)
            self.bytes += bucket.nbytes - (0 if before is None else before.nbytes)
            self._buckets[start_ms] = bucket


def _shape_bytes(shape: HistogramShape) -> int:
    """Rough memory of a shape: its objects, spans and bounds."""
    return 256 + 120 * (len(shape.positive) + len(shape.negative)) + 32 * len(shape.bounds)


def _has_details(details: SampleDetails, samples: int) -> NDArray[np.bool_]:
    found = np.zeros(samples, np.bool_)
    if details.start_ms is not None:
        found |= details.start_ms != 0
    if details.histogram_of is not None:
        found |= details.histogram_of >= 0
    return found

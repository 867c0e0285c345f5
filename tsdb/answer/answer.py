"""Answer: the answer of a store or a querier to a select, as arrays.

A select gives one or more answers. The first has the states of its partitions, the last has the counts of all. A
partition may continue in the next answer. Arrays may be shared with caches, so nobody writes to them. The
samples of all partitions become arrays of series: `raw_series` here, `joined_series` of tsdb.answer.columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.state import MemoryState
from tsdb.codec.records.exemplar_record import Exemplars
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import CorruptData

# Samples in columns that a store keeps decoded, 512 KiB, and in an overlay that the reader trims instead of the store.
JOINED_SAMPLES_MAX = 32_768
GROUP_BYTES = 200  # A count by label values: a tuple with its texts, in a dict.


Admit = Callable[[int], None]
"""Called with the bytes that a result takes, before they are allocated; raises when they are not available."""


def malformed(message: str) -> CorruptData:
    """The error of an answer that contradicts itself."""
    return CorruptData(f"answer is malformed: {message}", reason="answer_malformed")


class PackedLabels:
    """Canonical label sets of n series: packed, one after another with their lengths, or split. Either form is made of
    the other once, when it is first needed."""

    __slots__ = ("_joined", "_lengths", "_split")

    def __init__(self, joined: bytes, lengths: NDArray[np.uint32]) -> None:
        """lengths: uint32 (n,), bytes of each label set."""
        self._joined: bytes | None = joined
        self._lengths: NDArray[np.uint32] | None = lengths
        self._split: list[bytes] | None = None

    @classmethod
    def of(cls, labels: list[bytes]) -> PackedLabels:
        """One label set per series."""
        made = cls.__new__(cls)
        made._joined = made._lengths = None
        made._split = labels
        return made

    @property
    def joined(self) -> bytes:
        if self._joined is None:
            self._joined = b"".join(self.split())
        return self._joined

    @property
    def lengths(self) -> NDArray[np.uint32]:
        """uint32 (n,), bytes of each label set."""
        if self._lengths is None:
            split = self.split()
            self._lengths = np.fromiter(map(len, split), np.uint32, len(split))
        return self._lengths

    def split(self) -> list[bytes]:
        """One label set per series; the list is shared."""
        if self._split is None:
            joined, bounds = self.joined, [0, *np.cumsum(self.lengths, dtype=np.int64).tolist()]
            self._split = [joined[start:end] for start, end in pairwise(bounds)]
        return self._split

    @property
    def nbytes(self) -> int:
        """Memory of the packed form."""
        return len(self.joined) + self.lengths.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class AnswerSeries:
    """Series of one partition, ascending by id. series_ids: uint64 (s,). labels: None when they were not asked for.

    first_ms, last_ms: int64 (s,), only in answers about series: the first and last sample time in memory; without one
    the largest and the least int64.
    """

    partition: int
    series_ids: NDArray[np.uint64]
    labels: PackedLabels | None = None
    first_ms: NDArray[np.int64] | None = None
    last_ms: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.series_ids)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays and labels."""
        times = 0 if self.first_ms is None else 2 * self.first_ms.nbytes
        return self.series_ids.nbytes + times + (0 if self.labels is None else self.labels.nbytes)

    def canonical(self) -> list[bytes]:
        """Canonical label sets; all empty for a read without labels."""
        return [b""] * len(self.series_ids) if self.labels is None else self.labels.split()


@dataclass(slots=True, eq=False)
class RawResult:
    """Samples of n series: counts (n,) uint32; ts_ms int64 ascending strictly within a series; values float64.

    orders: with `partial`, the log offset of each sample below coverage and -1 above; else None. first_series: index
    in its partition of the series of counts[0]. details: start timestamps and histograms of the samples, None where
    they have none.
    """

    counts: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64] | None = None
    first_series: int = 0
    details: SampleDetails | None = None

    @property
    def samples(self) -> int:
        return len(self.ts_ms)

    def split(self, ends: NDArray[np.int64]) -> list[RawResult]:
        """One result per i, of the series [ends[i], ends[i + 1]). Arrays are shared. Not for results with orders."""
        assert self.orders is None, "not made with partial"
        before = np.concatenate(([0], np.cumsum(self.counts, dtype=np.int64)))[ends].tolist()
        return [
            RawResult(
                self.counts[first:last],
                self.ts_ms[start:end],
                self.values[start:end],
                details=self.details and self.details.part(start, end),
            )
            for (first, last), (start, end) in zip(pairwise(ends.tolist()), pairwise(before), strict=True)
        ]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the arrays."""
        more = sum(part.nbytes for part in (self.orders, self.details) if part is not None)
        return self.counts.nbytes + self.ts_ms.nbytes + self.values.nbytes + more


@dataclass(slots=True, eq=False)
class SealedColumns:
    """Whole columns of sealed slices, not decoded, laid out as ColumnsFrame in proto/tsdb/v1/reader.proto.

    Slices ascend by time. series_index (n,) uint32 into the series of the partition, in the order of data;
    column_lengths, axis_index (n,) uint32; axis_base_ms (a,) int64; axis_lengths, axis_counts (a,) uint32; axes, data
    uint8.
    """

    samples: int
    series_index: NDArray[np.uint32]
    column_lengths: NDArray[np.uint32]
    axis_index: NDArray[np.uint32]
    axis_base_ms: NDArray[np.int64]
    axis_lengths: NDArray[np.uint32]
    axis_counts: NDArray[np.uint32]
    axes: NDArray[np.uint8]
    data: NDArray[np.uint8]

    @property
    def payload_bytes(self) -> int:
        """Bytes of the arrays."""
        small = 12 * len(self.series_index) + 16 * len(self.axis_base_ms)
        return small + len(self.axes) + len(self.data)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All arrays, in the order of the fields."""
        return (
            self.series_index,
            self.column_lengths,
            self.axis_index,
            self.axis_base_ms,
            self.axis_lengths,
            self.axis_counts,
            self.axes,
            self.data,
        )

    def copy(self) -> SealedColumns:
        """The same columns in arrays that hold nothing else."""
        return SealedColumns(self.samples, *[array.copy() for array in self.arrays()])

    def freeze(self) -> None:
        """Make the arrays read-only, like the arrays of a message, because kernels are compiled for one kind
        of array.
        """
        for array in self.arrays():
            array.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class JoinedSamples:
    """The samples of an answer with few of them, decoded: those of the series of all partitions, one after another.

    starts: int64 (series + 1,), series i has the samples [starts[i], starts[i + 1]) of ts_ms and values, which came
    from columns. overlay: as in PartitionAnswer. Samples outside the range may be among both, if each has at most
    JOINED_SAMPLES_MAX.
    """

    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    overlay: RawResult


@dataclass(frozen=True, slots=True, eq=False)
class PartitionAnswer:
    """Series and samples of one partition, or a part of them. series: None when an earlier part has them.

    raw: samples in the range. columns: sealed slices, whole. overlay: samples that are not in columns, or replace
    samples in them. Samples with details are never in columns.
    """

    partition: int
    series: AnswerSeries | None = None
    columns: Sequence[SealedColumns] = ()
    overlay: Sequence[RawResult] = ()
    raw: Sequence[RawResult] = ()


class AnswerCounts(NamedTuple):
    """samples: number of samples before columns are trimmed. payload_bytes: the bytes of the arrays of samples."""

    series: int
    samples: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AnswerBody:
    """parts: ascending by partition. counts: the counts of the whole select; the last answer has them. nbytes: the
    bytes of memory. joined: the samples of all parts once more, where they are few.
    """

    parts: Sequence[PartitionAnswer]
    counts: AnswerCounts | None
    nbytes: int
    joined: JoinedSamples | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """states: the states of all partitions of the select, in its first answer. warnings: possible gaps of the select;
    the first answer has them too.
    """

    body: AnswerBody
    states: Sequence[MemoryState] | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SeriesAnswer:
    """A part of the answer about series. The first part has `states`; each later one the series of one partition, or
    their number by the values of some labels."""

    states: Sequence[MemoryState] | None = None
    warnings: Sequence[str] = ()
    series: AnswerSeries | None = None
    groups: Mapping[tuple[str, ...], int] | None = None

    @property
    def nbytes(self) -> int:
        """Memory of series, or estimated of groups."""
        groups = 0 if self.groups is None else GROUP_BYTES * len(self.groups)
        return groups + (0 if self.series is None else self.series.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class LabelsAnswer:
    """Label names, or the values of one label: distinct."""

    states: Sequence[MemoryState]
    warnings: Sequence[str]
    texts: Collection[str]


@dataclass(frozen=True, slots=True, eq=False)
class ExemplarsAnswer:
    """A part of the answer about exemplars. The first part has `states`; each later one some series of a partition,
    with labels, and all their exemplars in the range, in the order of the series and of their arrival."""

    states: Sequence[MemoryState] | None = None
    warnings: Sequence[str] = ()
    series: AnswerSeries | None = None
    exemplars: Exemplars | None = None

    @property
    def nbytes(self) -> int:
        """Memory of series and exemplars."""
        series = 0 if self.series is None else self.series.nbytes
        return series + (0 if self.exemplars is None else self.exemplars.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class WatchAnswer:
    """n samples of one applied record, or of several consecutive ones, in the order in which they were applied.

    last_record_offset: the watch has looked at all records up to it; without samples the answer is a heartbeat.
    warning: what the partition may lack, or "". record_offsets, ts_ms: int64 (n,). series_ids: uint64 (n,). values:
    float64 (n,). series: those that no answer of the stream described before, with labels; None: all were. details:
    start timestamps and histograms of the samples, None where they have none.
    """

    partition: int
    topic_id: str
    last_record_offset: int
    warning: str = ""
    record_offsets: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    series_ids: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    ts_ms: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0, np.float64))
    series: AnswerSeries | None = None
    details: SampleDetails | None = None


def joined_parts(answers: Iterable[Answer]) -> list[PartitionAnswer]:
    """The parts of one select, ascending by partition, each partition in one part."""
    bodies = [answer.body for answer in answers]
    if len(bodies) == 1:
        return list(bodies[0].parts)
    pieces: dict[int, list[PartitionAnswer]] = {}
    for body in bodies:
        for part in body.parts:
            pieces.setdefault(part.partition, []).append(part)
    return [one_part(pieces[partition]) for partition in sorted(pieces)]


def one_part(pieces: Sequence[PartitionAnswer]) -> PartitionAnswer:
    """The parts of one partition as one. Raises CorruptData (answer_malformed) unless exactly one of them has its
    series."""
    if len(pieces) == 1 and pieces[0].series is not None:
        return pieces[0]
    blocks = [piece.series for piece in pieces if piece.series is not None]
    if len(blocks) != 1:
        raise malformed(f"{len(blocks)} series blocks of one partition")
    return PartitionAnswer(
        pieces[0].partition,
        blocks[0],
        [one for piece in pieces for one in piece.columns],
        [one for piece in pieces for one in piece.overlay],
        [one for piece in pieces for one in piece.raw],
    )


@dataclass(frozen=True, slots=True)
class JoinedSeries:
    """Series with samples in a range. starts: int64 (s + 1,), series i has samples [starts[i], starts[i + 1]) of ts_ms
    and values. orders: only with `partial`, else None. blocks: series of which those at the indexes `kept` are here.
    details: start timestamps and histograms of the samples, None where they have none."""

    canonical: Sequence[bytes]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64] | None
    blocks: Sequence[AnswerSeries]
    kept: NDArray[np.int64]
    details: SampleDetails | None = None

    @property
    def series_ids(self) -> NDArray[np.uint64]:
        ids: NDArray[np.uint64] = flat([block.series_ids for block in self.blocks], np.uint64)[self.kept]
        return ids


def raw_series(parts: Sequence[PartitionAnswer]) -> JoinedSeries:
    """The samples of whole partitions that came as RAW, in their order; series without samples are left out."""
    blocks = blocks_of(parts)
    return with_samples(
        blocks, raw_joined([raw_of(part.raw, len(block)) for part, block in zip(parts, blocks, strict=True)])
    )


def blocks_of(parts: Sequence[PartitionAnswer]) -> list[AnswerSeries]:
    """The series of whole partitions."""
    return [part.series for part in parts if part.series is not None]


def with_samples(blocks: Sequence[AnswerSeries], samples: RawResult) -> JoinedSeries:
    """The series of these blocks that have samples. A matching series without samples in the range is not in the
    result, as in Prometheus."""
    canonical: list[bytes] = []
    for block in blocks:
        canonical += block.canonical()
    counts = samples.counts
    (kept,) = counts.nonzero()
    if len(kept) != len(canonical):
        counts, canonical = counts[kept], [canonical[index] for index in kept.tolist()]
    starts = np.zeros(len(kept) + 1, np.int64)
    counts.cumsum(out=starts[1:])
    arrays = samples.ts_ms, samples.values, samples.orders
    return JoinedSeries(canonical, starts, *arrays, blocks, kept, samples.details)


def raw_of(pieces: Sequence[RawResult], series: int) -> RawResult:
    """The samples of one partition with `series` series. A series may continue in the next piece.

    Raises CorruptData (answer_malformed) for pieces that overlap.
    """
    if len(pieces) == 1 and len(pieces[0].counts) == series and not pieces[0].first_series:
        return pieces[0]
    counts, reached = np.zeros(series, np.uint32), 0
    for piece in pieces:
        first, last = piece.first_series, piece.first_series + len(piece.counts)
        # A series may continue in the next piece, so a piece begins at the last series of the previous one or later.
        if last > series or first < reached:
            raise malformed(f"samples of series [{first}, {last}) after {reached}; there are {series}")
        reached = max(last - 1, reached)
        counts[first:last] += piece.counts
    orders = [piece.orders for piece in pieces if piece.orders is not None]
    if orders and len(orders) != len(pieces):
        raise malformed("orders in some frames only")
    return RawResult(
        counts,
        flat([piece.ts_ms for piece in pieces], np.int64),
        flat([piece.values for piece in pieces], np.float64),
        flat(orders, np.int64) if orders else None,
        details=joined_details([(piece.samples, piece.details) for piece in pieces]),
    )


def raw_joined(parts: Sequence[RawResult]) -> RawResult:
    """The series of all parts, one part after another. Raises CorruptData for orders of some parts alone."""
    orders = [part.orders for part in parts if part.orders is not None]
    if orders and sum(map(len, orders)) != sum(part.samples for part in parts):
        raise malformed("orders of some partitions only")
    return RawResult(
        flat([part.counts for part in parts], np.uint32),
        flat([part.ts_ms for part in parts], np.int64),
        flat([part.values for part in parts], np.float64),
        flat(orders, np.int64) if orders else None,
        details=joined_details([(part.samples, part.details) for part in parts]),
    )


def overlaid_details(samples: RawResult, overlay: RawResult) -> SampleDetails | None:
    """The details of samples that are those of an overlay and of columns. Both have the same series; the samples of the
    overlay that are in the range are all among them, and columns have no details."""
    if overlay.details is None:
        return None
    series = [np.repeat(np.arange(len(one.counts)), one.counts) for one in (overlay, samples)]
    times = np.concatenate((overlay.ts_ms, samples.ts_ms))
    order = np.lexsort((times, np.concatenate(series)))  # A sample of the overlay comes before its equal.
    of, ts_ms = np.concatenate(series)[order], times[order]
    is_pair = np.zeros(len(order), np.bool_)
    is_pair[1:] = (of[1:] == of[:-1]) & (ts_ms[1:] == ts_ms[:-1])
    # All other samples take those of one more sample, which has none.
    rows = np.full(samples.samples, overlay.samples)
    rows[order[is_pair] - overlay.samples] = order[np.flatnonzero(is_pair) - 1]
    padded = joined_details([(overlay.samples, overlay.details), (1, None)])
    return padded and padded.take(rows)


def flat(parts: Sequence[Any], dtype: Any) -> Any:
    """The concatenation; a single array is not copied."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype)

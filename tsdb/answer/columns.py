"""Columns: decodes the columns and overlays of partitions into arrays that they share, trimmed to the requested range.

Layout of columns and axes: docs/formats/columns.md. At equal timestamps the samples of overlays win. A large
answer is decoded on several cores, each series into its place in the result: no sample is copied afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.answer import columns_kernels as kernels
from tsdb.answer.answer import (
    JOINED_SAMPLES_MAX,
    Admit,
    AnswerBody,
    JoinedSamples,
    JoinedSeries,
    PartitionAnswer,
    RawResult,
    SealedColumns,
    blocks_of,
    malformed,
    overlaid_details,
    raw_joined,
    raw_of,
    raw_series,
    with_samples,
)
from tsdb.model.errors import CorruptData
from tsdb.ops.cores import on_cores

AXIS_SAMPLES_MAX = 1 << 24  # The format sets this bound.
SAMPLES_MAX = 1 << 27  # A few bad bytes may claim millions of samples. Servers refuse answers far below this bound.
SAMPLE_BYTES = 16
PART_SAMPLES = 1 << 18  # Samples that one core decodes at a time: 2 ms.

_NAME = "columns"
_NO_COUNTS, _NO_TIMES, _NO_VALUES = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)
_REASONS = {
    kernels.BAD_LENGTHS: "lengths do not add up to its bytes",
    kernels.BAD_INDEX: "an index is beyond the series or axes there are",
    kernels.BAD_AXIS: "a time axis does not decode or does not ascend",
    kernels.BAD_COLUMN: "a column does not decode",
    kernels.BAD_ORDER: "samples of a series do not ascend",
    kernels.BAD_RANGE: "an overlay sample is outside the range",
}

_Scalar = TypeVar("_Scalar", bound=np.generic)

Decoded = tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.float64]]
"""(counts per series, ts_ms, values), time ascending within each series."""


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """Columns and overlays of one partition, in order of arrival. series: their number."""

    series: int
    columns: Sequence[SealedColumns]
    overlay: Sequence[RawResult]


def joined_body(body: AnswerBody, start_ms: int, end_ms: int, admit: Admit) -> JoinedSeries:
    """The `joined_series` of a body of this process that has the whole answer."""
    if body.joined is None:
        return joined_series(body.parts, start_ms, end_ms, admit)
    samples = _trimmed(body.joined, start_ms, end_ms)
    admit(SAMPLE_BYTES * samples.samples)
    return with_samples(blocks_of(body.parts), samples)


def _trimmed(joined: JoinedSamples, start_ms: int, end_ms: int) -> RawResult:
    """The samples of [start_ms, end_ms), by one call: in a small answer, calls take longer than samples."""
    overlay, size = joined.overlay, len(joined.ts_ms) + joined.overlay.samples
    if overlay.samples > JOINED_SAMPLES_MAX and not len(joined.ts_ms):
        # Nothing to trim or to merge. The samples are copied, because the arrays of an answer may be shared.
        return RawResult(overlay.counts, overlay.ts_ms.copy(), overlay.values.copy(), details=overlay.details)
    counts, ts, values = np.empty(len(overlay.counts), np.uint32), np.empty(size, np.int64), np.empty(size)
    total = kernels.trim_joined_kernel(
        joined.starts,
        joined.ts_ms,
        joined.values,
        overlay.counts,
        overlay.ts_ms,
        overlay.values,
        start_ms,
        end_ms,
        counts,
        ts,
        values,
    )
    found = RawResult(counts, ts[:total], values[:total])
    found.details = overlaid_details(found, overlay)
    return found


def joined_series(
    parts: Sequence[PartitionAnswer], start_ms: int, end_ms: int, admit: Admit = lambda size: None
) -> JoinedSeries:
    """The samples in [start_ms, end_ms) of whole partitions, in their order; series without samples are left out.

    admit: called with the bytes of the samples in columns before they are decoded. Raises CorruptData for parts that
    contradict each other.
    """
    raw, columns = [], []
    for part in parts:
        if part.raw:
            raw.append(part.partition)
        if part.columns or part.overlay:
            columns.append(part.partition)
    if raw and columns:
        raise malformed(f"partition {raw[0]} came as RAW, partition {columns[0]} as COLUMNS")
    if not columns:
        return raw_series(parts)
    blocks = blocks_of(parts)
    framed = [
        PartitionColumns(len(block.series_ids), part.columns, part.overlay)
        for part, block in zip(parts, blocks, strict=True)
    ]
    found = RawResult(*decode_partitions(framed, start_ms, end_ms, admit))
    overlays = [piece for part in framed for piece in part.overlay]
    if any(piece.details is not None for piece in overlays):
        whole = [raw_of(part.overlay, part.series) for part in framed]
        admit(found.payload_bytes + sum(one.details.nbytes for one in whole if one.details is not None))
        found.details = overlaid_details(found, raw_joined(whole))
    return with_samples(blocks, found)


def decode_partitions(
    parts: Sequence[PartitionColumns], start_ms: int, end_ms: int, admit: Admit = lambda size: None
) -> Decoded:
    """Samples in [start_ms, end_ms) of all series, in the order of `parts`.

    Raises CorruptData (bad_columns) when frames contradict themselves or each other.
    """
    if not [part for part in parts if part.columns]:
        return _overlays(parts, start_ms, end_ms, admit)
    plans = [_Plan.of(part, start_ms, end_ms) for part in parts]
    series, samples = _bounds([plan.series for plan in plans]), _bounds([plan.samples for plan in plans])
    size = SAMPLE_BYTES * samples[-1]
    admit(size)
    counts = np.empty(series[-1], np.uint32)
    ts, values = np.empty(samples[-1], np.int64), np.empty(samples[-1], np.float64)
    capacities = [slice(first, end) for first, end in pairwise(samples)]
    runs = [_Runs.of(plan, ts[capacity], values[capacity]) for plan, capacity in zip(plans, capacities, strict=True)]
    on_cores(lambda part: part.decode(), [part for one in runs for part in one.parts()], size)
    sizes = on_cores(
        lambda number: runs[number].merge(counts[series[number] : series[number + 1]]), range(len(runs)), size
    )
    total = _close_gaps(samples[:-1], sizes, ts, values)
    return counts, ts[:total], values[:total]


def _bounds(sizes: Sequence[int]) -> list[int]:
    """The start of each part in the concatenation of all parts, and the end of the last one."""
    return [0, *accumulate(sizes)]


def _close_gaps(starts: Sequence[int], sizes: Sequence[int], ts: NDArray[np.int64], values: NDArray[np.float64]) -> int:
    """Move parts together where replaced samples left gaps between them. Returns the number of samples."""
    to = 0
    for start, size in zip(starts, sizes, strict=True):
        if start != to:
            ts[to : to + size] = ts[start : start + size]
            values[to : to + size] = values[start : start + size]
        to += size
    return to


@dataclass(frozen=True, slots=True)
class _Plan:
    """Checked frames of one partition with decoded axes. capacity: int64 (series,), upper bound of the samples of each
    series.
    """

    pieces: list[tuple[_Piece, _Axes]]
    over_counts: NDArray[np.int64]
    over_ts: NDArray[np.int64]
    over_values: NDArray[np.float64]
    capacity: NDArray[np.int64]
    samples: int

    @classmethod
    def of(cls, part: PartitionColumns, start_ms: int, end_ms: int) -> _Plan:
        if not part.columns and not part.overlay:  # Most partitions are empty in the answer of a narrow selector.
            none = np.zeros(part.series, np.int64)
            return cls([], none, _NO_TIMES, _NO_VALUES, none, 0)
        over_counts, times, values = _overlay(part.series, part.overlay)
        over_ts, over_values = _writable(times, _NO_TIMES), _writable(values, _NO_VALUES)
        _check(kernels.check_overlay_kernel(over_counts, over_ts, start_ms, end_ms), "overlay")
        pieces, capacity = [], over_counts.copy()
        for frame in part.columns:
            piece = _Piece(frame)
            axes = piece.axes_within(part.series, start_ms, end_ms)
            kernels.count_columns_kernel(frame.series_index, frame.axis_index, axes.low, axes.high, capacity)
            pieces.append((piece, axes))
        samples = int(capacity.sum())
        if samples > SAMPLES_MAX:
            raise CorruptData(f"columns claim {samples} samples; limit is {SAMPLES_MAX}", reason="bad_columns")
        return cls(pieces, over_counts, over_ts, over_values, capacity, samples)

    @property
    def series(self) -> int:
        return len(self.capacity)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Samples of one partition during the decoding. The samples of series i begin at starts[i], and end at ends[i] so
    far.

    ts, values: have the capacity for all samples of the plan.

    """

    plan: _Plan
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    ts: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, plan: _Plan, ts: NDArray[np.int64], values: NDArray[np.float64]) -> _Runs:
        starts = np.cumsum(plan.capacity) - plan.capacity
        return cls(plan, starts, starts.copy(), ts, values)

    def parts(self) -> list[_RunsPart]:
        """Parts that several cores can decode: each has some of the series."""
        if not self.plan.pieces or not self.plan.samples:
            return []
        parts = -(-self.plan.samples // PART_SAMPLES)
        edges = [self.plan.series * number // parts for number in range(parts + 1)]
        return [_RunsPart(self, first, end) for first, end in pairwise(edges)]

    def merge(self, counts: NDArray[np.uint32]) -> int:
        """Merge the overlay, move the samples together and fill `counts`. Returns the number of samples."""
        plan = self.plan
        if not plan.samples:
            counts[:] = 0
            return 0
        return kernels.merge_overlay_kernel(
            self.starts, self.ends, self.ts, self.values, plan.over_counts, plan.over_ts, plan.over_values, counts
        )


@dataclass(frozen=True, slots=True)
class _RunsPart:
    """The series [first, end) of one partition."""

    runs: _Runs
    first: int
    end: int

    def decode(self) -> None:
        """Decode the columns of these series. No other part writes to their runs."""
        for piece, axes in self.runs.plan.pieces:
            piece.append_to(axes, self)


@dataclass(frozen=True, slots=True)
class _Axes:
    """Decoded axes of a piece: the times of axis a begin at at[a]; those in [low[a], high[a]) are in the range."""

    times: NDArray[np.int64]
    at: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Columns of one partition, to be checked and decoded."""

    columns: SealedColumns

    def axes_within(self, series_count: int, start_ms: int, end_ms: int) -> _Axes:
        """Check the directory and decode the axes."""
        columns = self.columns
        status = kernels.check_piece_kernel(
            series_count,
            columns.series_index,
            columns.column_lengths,
            columns.axis_index,
            columns.axis_lengths,
            len(columns.data),
            len(columns.axes),
        )
        _check(status, _NAME)
        total = int(columns.axis_counts.sum(dtype=np.int64))
        if not len(columns.axis_counts) == len(columns.axis_lengths) == len(columns.axis_base_ms):
            _check(kernels.BAD_LENGTHS, _NAME)
        if total > SAMPLES_MAX or (len(columns.axis_counts) and int(columns.axis_counts.max()) > AXIS_SAMPLES_MAX):
            raise CorruptData(
                f"{_NAME}: time axes claim {total} samples; limit is {AXIS_SAMPLES_MAX} an axis",
                reason="bad_columns",
            )
        axes = len(columns.axis_counts)
        decoded = _Axes(np.empty(total, np.int64), *(np.empty(axes, np.int64) for _ in range(3)))
        status = kernels.decode_axes_kernel(
            columns.axis_base_ms,
            start_ms,
            end_ms,
            columns.axis_lengths,
            columns.axis_counts,
            columns.axes,
            decoded.times,
            decoded.at,
            decoded.low,
            decoded.high,
        )
        _check(status, _NAME)
        return decoded

    def append_to(self, axes: _Axes, part: _RunsPart) -> None:
        """Decode the columns of the part's series and append each to the samples of its series."""
        columns = self.columns
        longest = int(columns.axis_counts.max()) if len(columns.axis_counts) else 0
        status = kernels.decode_columns_kernel(
            part.first,
            part.end,
            columns.series_index,
            columns.column_lengths,
            columns.axis_index,
            columns.axis_counts,
            columns.data,
            axes.times,
            axes.at,
            axes.low,
            axes.high,
            part.runs.starts,
            part.runs.ends,
            part.runs.ts,
            part.runs.values,
            np.empty(longest, np.float64),
        )
        _check(status, _NAME)


def _overlays(parts: Sequence[PartitionColumns], start_ms: int, end_ms: int, admit: Admit) -> Decoded:
    """The samples of parts without columns: those of most narrow reads of recent time."""
    counts, times, values = [_NO_COUNTS], [_NO_TIMES], [_NO_VALUES]
    for part in parts:
        of_part, part_times, part_values = _overlay(part.series, part.overlay)
        counts.append(of_part)
        times += part_times
        values += part_values
    admit(SAMPLE_BYTES * sum(map(len, times)))
    # The concatenation copies: the arrays of an answer may be shared.
    whole, ts = np.concatenate(counts), np.concatenate(times)
    _check(kernels.check_overlay_kernel(whole, ts, start_ms, end_ms), "overlay")
    return whole.astype(np.uint32), ts, np.concatenate(values)


def _overlay(
    series_count: int, parts: Sequence[RawResult]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], list[NDArray[np.float64]]]:
    """(counts, ts_ms, values) of one partition, the samples in parts. A series may continue in the next part."""
    counts = np.zeros(series_count, np.int64)
    times, values, reached = [], [], 0
    for part in parts:
        first, last = part.first_series, part.first_series + len(part.counts)
        if first < reached or last > series_count:
            _check(kernels.BAD_INDEX, "overlay")
        if int(part.counts.sum(dtype=np.int64)) != len(part.ts_ms) or len(part.ts_ms) != len(part.values):
            _check(kernels.BAD_LENGTHS, "overlay")
        times.append(part.ts_ms)
        values.append(part.values)
        counts[first:last] += part.counts
        reached = max(last - 1, first)
    return counts, times, values


def _writable(parts: list[NDArray[_Scalar]], none: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The parts as one writable array. Kernels are compiled only for writable arrays, and the arrays of a message are
    read-only.
    """
    if len(parts) == 1 and parts[0].flags.writeable:
        return parts[0]
    return np.concatenate(parts) if parts else none


def _check(status: int, what: str) -> None:
    if status != kernels.OK:
        raise CorruptData(f"{what}: {_REASONS[status]}", reason="bad_columns")

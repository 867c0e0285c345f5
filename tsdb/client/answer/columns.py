"""Decodes the frames of partitions in a COLUMNS answer into shared arrays, trimmed to the requested range.

Layout of columns and axes: docs/formats/columns.md. At equal timestamps the samples of overlay frames win. A large
answer is decoded on several cores. Each series is decoded to its position in the result, so no sample is copied
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.client.answer import columns_kernels as kernels
from tsdb.model.errors import CorruptData
from tsdb.ops.cores import on_cores
from tsdb.v1 import reader_pb2

AXIS_SAMPLES_MAX = 1 << 24  # The format sets this bound.
SAMPLES_MAX = 1 << 27  # A few bad bytes may claim millions of samples. Servers refuse answers far below this bound.
SAMPLE_BYTES = 16
PART_SAMPLES = 1 << 18  # Decoded by one core at a time: 2 ms.

_NAME = "columns"
_NO_TIMES, _NO_VALUES = np.empty(0, np.int64), np.empty(0, np.float64)
_REASONS = {
    kernels.BAD_LENGTHS: "lengths do not add up to its bytes",
    kernels.BAD_INDEX: "an index is beyond the series or axes there are",
    kernels.BAD_AXIS: "a time axis does not decode or does not ascend",
    kernels.BAD_COLUMN: "a column does not decode",
    kernels.BAD_ORDER: "samples of a series do not ascend",
    kernels.BAD_RANGE: "an overlay sample is outside the range",
}

_Element = TypeVar("_Element", bound=np.generic)

Decoded = tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.float64]]
"""(counts per series, ts_ms, values), time ascending within each series."""

Admit = Callable[[int], None]
"""Called with the bytes that the result takes, before they are allocated; raises when they are not available."""


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """Frames of one partition in a COLUMNS answer, in the order of arrival. series: number of series in its
    SeriesBlock."""

    series: int
    columns: Sequence[reader_pb2.ColumnsFrame]
    overlay: Sequence[reader_pb2.RawFrame]


def decode_partitions(
    parts: Sequence[PartitionColumns], start_ms: int, end_ms: int, admit: Admit = lambda size: None
) -> Decoded:
    """Samples in [start_ms, end_ms) of all series, in the order of `parts`.

    Raises CorruptData (bad_columns) when frames contradict themselves or each other.
    """
    plans = [_Plan.of(part, start_ms, end_ms) for part in parts]
    series, samples = _bounds([plan.series for plan in plans]), _bounds([plan.samples for plan in plans])
    size = SAMPLE_BYTES * samples[-1]
    admit(size)
    counts = np.empty(series[-1], np.uint32)
    ts, values = np.empty(samples[-1], np.int64), np.empty(samples[-1], np.float64)
    rooms = [slice(first, end) for first, end in pairwise(samples)]
    runs = [_Runs.of(plan, ts[room], values[room]) for plan, room in zip(plans, rooms, strict=True)]
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
    """Checked frames of one partition with decoded axes. room: int64 (series,), upper bound of the samples of each
    series."""

    pieces: list[tuple[_Piece, _Axes]]
    over_counts: NDArray[np.int64]
    over_ts: NDArray[np.int64]
    over_values: NDArray[np.float64]
    room: NDArray[np.int64]
    samples: int

    @classmethod
    def of(cls, part: PartitionColumns, start_ms: int, end_ms: int) -> _Plan:
        if not part.columns and not part.overlay:  # Most partitions are empty in the answer of a narrow selector.
            none = np.zeros(part.series, np.int64)
            return cls([], none, _NO_TIMES, _NO_VALUES, none, 0)
        over_counts, over_ts, over_values = _overlay(part.series, part.overlay)
        _check(kernels.check_overlay_kernel(over_counts, over_ts, start_ms, end_ms), "overlay")
        pieces, room = [], over_counts.copy()
        for frame in part.columns:
            piece = _Piece.read(frame)
            axes = piece.axes_within(part.series, start_ms, end_ms)
            kernels.count_columns_kernel(piece.series_index, piece.axis_index, axes.low, axes.high, room)
            pieces.append((piece, axes))
        samples = int(room.sum())
        if samples > SAMPLES_MAX:
            raise CorruptData(f"columns claim {samples} samples; limit is {SAMPLES_MAX}", reason="bad_columns")
        return cls(pieces, over_counts, over_ts, over_values, room, samples)

    @property
    def series(self) -> int:
        return len(self.room)


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
        starts = np.cumsum(plan.room) - plan.room
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
    """The arrays of one ColumnsFrame."""

    series_index: NDArray[np.uint32]
    column_lengths: NDArray[np.uint32]
    axis_index: NDArray[np.uint32]
    axis_base_ms: NDArray[np.int64]
    axis_lengths: NDArray[np.uint32]
    axis_counts: NDArray[np.uint32]
    axes: NDArray[np.uint8]
    data: NDArray[np.uint8]

    @staticmethod
    def read(frame: reader_pb2.ColumnsFrame) -> _Piece:
        return _Piece(
            _u32(frame.series_index, "series_index"),
            _u32(frame.column_lengths, "column_lengths"),
            _u32(frame.axis_index, "axis_index"),
            _array(frame.axis_base_ms, np.int64, "axis_base_ms"),
            _u32(frame.axis_lengths, "axis_lengths"),
            _u32(frame.axis_counts, "axis_counts"),
            np.frombuffer(frame.axes, np.uint8),
            np.frombuffer(frame.data, np.uint8),
        )

    def axes_within(self, series_count: int, start_ms: int, end_ms: int) -> _Axes:
        """Check the directory and decode the axes."""
        status = kernels.check_piece_kernel(
            series_count,
            self.series_index,
            self.column_lengths,
            self.axis_index,
            self.axis_lengths,
            len(self.data),
            len(self.axes),
        )
        _check(status, _NAME)
        total = int(self.axis_counts.sum(dtype=np.int64))
        if not len(self.axis_counts) == len(self.axis_lengths) == len(self.axis_base_ms):
            _check(kernels.BAD_LENGTHS, _NAME)
        if total > SAMPLES_MAX or (len(self.axis_counts) and int(self.axis_counts.max()) > AXIS_SAMPLES_MAX):
            raise CorruptData(
                f"{_NAME}: time axes claim {total} samples; limit is {AXIS_SAMPLES_MAX} an axis",
                reason="bad_columns",
            )
        axes = len(self.axis_counts)
        decoded = _Axes(np.empty(total, np.int64), *(np.empty(axes, np.int64) for _ in range(3)))
        status = kernels.decode_axes_kernel(
            self.axis_base_ms,
            start_ms,
            end_ms,
            self.axis_lengths,
            self.axis_counts,
            self.axes,
            decoded.times,
            decoded.at,
            decoded.low,
            decoded.high,
        )
        _check(status, _NAME)
        return decoded

    def append_to(self, axes: _Axes, part: _RunsPart) -> None:
        """Decode the columns of the part's series and append each to the samples of its series."""
        longest = int(self.axis_counts.max()) if len(self.axis_counts) else 0
        status = kernels.decode_columns_kernel(
            part.first,
            part.end,
            self.series_index,
            self.column_lengths,
            self.axis_index,
            self.axis_counts,
            self.data,
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


def _overlay(
    series_count: int, frames: Sequence[reader_pb2.RawFrame]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(counts, ts_ms, values) of all frames. The samples of a series may continue in the next frame."""
    counts = np.zeros(series_count, np.int64)
    times, values, reached = [_NO_TIMES], [_NO_VALUES], 0
    for frame in frames:
        part = _u32(frame.counts, "counts").astype(np.int64)
        times.append(_array(frame.ts_ms, np.int64, "ts_ms"))
        values.append(_array(frame.values, np.float64, "values"))
        if frame.first_series < reached or frame.first_series + len(part) > series_count:
            _check(kernels.BAD_INDEX, "overlay")
        if int(part.sum()) != len(times[-1]) or len(times[-1]) != len(values[-1]):
            _check(kernels.BAD_LENGTHS, "overlay")
        counts[frame.first_series : frame.first_series + len(part)] += part
        reached = frame.first_series + max(len(part) - 1, 0)
    return counts, np.concatenate(times), np.concatenate(values)


def _u32(data: bytes, what: str) -> NDArray[np.uint32]:
    return _array(data, np.uint32, what)


def _array(data: bytes, element: type[_Element], what: str) -> NDArray[_Element]:
    size = np.dtype(element).itemsize
    if len(data) % size:
        raise CorruptData(f"{what} has {len(data)} bytes, no multiple of {size}", reason="bad_columns")
    return np.frombuffer(data, element)


def _check(status: int, what: str) -> None:
    if status != kernels.OK:
        raise CorruptData(f"{what}: {_REASONS[status]}", reason="bad_columns")

"""COLUMNS: decodes the frames of one partition into arrays, trimmed to the requested range. Pure.

Layout of columns and axes: docs/formats/columns.md. At equal timestamps the samples of overlay frames win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.client import columns_kernels as kernels
from tsdb.model.errors import CorruptData
from tsdb.v1 import reader_pb2

AXIS_SAMPLES_MAX = 1 << 24  # From the format.
SAMPLES_MAX = 1 << 27  # A few bad bytes may claim millions of samples. Servers refuse answers far below this bound.

_NAME = "columns"
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


def decode_partition(
    series_count: int,
    column_frames: Sequence[reader_pb2.ColumnsFrame],
    overlay_frames: Sequence[reader_pb2.RawFrame],
    start_ms: int,
    end_ms: int,
) -> Decoded:
    """Samples in [start_ms, end_ms) of the `series_count` series of a SeriesBlock.

    Raises CorruptData (bad_columns) when frames contradict themselves or each other.
    """
    pieces = [_Piece.read(frame) for frame in column_frames]
    over_counts, over_ts, over_values = _overlay(series_count, overlay_frames)
    _check(kernels.check_overlay_kernel(over_counts, over_ts, start_ms, end_ms), "overlay")
    counts = np.zeros(series_count, np.int64)
    axes = [piece.axes_within(series_count, start_ms, end_ms) for piece in pieces]
    for piece, axis in zip(pieces, axes, strict=True):
        kernels.count_columns_kernel(piece.series_index, piece.axis_index, axis.low, axis.high, counts)
    room = counts + over_counts
    total = int(room.sum())
    if total > SAMPLES_MAX:
        raise CorruptData(f"columns claim {total} samples; limit is {SAMPLES_MAX}", reason="bad_columns")
    starts = np.cumsum(room) - room
    ends = starts.copy()
    ts, values = np.empty(total, np.int64), np.empty(total, np.float64)
    for piece, axis in zip(pieces, axes, strict=True):
        piece.append_to(axis, starts, ends, ts, values)
    result = np.empty(series_count, np.uint32)
    size = kernels.merge_overlay_kernel(starts, ends, ts, values, over_counts, over_ts, over_values, result)
    return result, ts[:size], values[:size]


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

    def append_to(
        self,
        axes: _Axes,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        ts: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        """Decode the columns and append each to the samples of its series."""
        longest = int(self.axis_counts.max()) if len(self.axis_counts) else 0
        status = kernels.decode_columns_kernel(
            self.series_index,
            self.column_lengths,
            self.axis_index,
            self.axis_counts,
            self.data,
            axes.times,
            axes.at,
            axes.low,
            axes.high,
            starts,
            ends,
            ts,
            values,
            np.empty(longest, np.float64),
        )
        _check(status, _NAME)


def _overlay(
    series_count: int, frames: Sequence[reader_pb2.RawFrame]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(counts, ts_ms, values) of all frames. A series may continue in the next frame."""
    counts = np.zeros(series_count, np.int64)
    times, values, reached = [np.empty(0, np.int64)], [np.empty(0, np.float64)], 0
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

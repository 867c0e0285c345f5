"""Frames: the result of a head's gather, cut into frames for messages of the Reader service.

Messages are few and large: each message costs two hand-overs between threads, more than moving 100 KiB does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.head.read.gather import RawResult, SealedColumns
from tsdb.reader.wire import Fields
from tsdb.v1 import common_pb2, reader_pb2

FRAME_SAMPLES_MAX = 64 * 1024  # Samples of 1 MiB, (timestamp, value) each.
FRAME_BYTES_MAX = 1 << 20

_ARRAYS = (
    "series_index",
    "column_lengths",
    "axis_index",
    "axis_base_ms",
    "axis_lengths",
    "axis_counts",
    "axes",
    "data",
)
_COUNTS, _TS_MS, _VALUES, _ORDERS = (
    reader_pb2.RawFrame.DESCRIPTOR.fields_by_name[name].number for name in ("counts", "ts_ms", "values", "orders")
)
_ARRAY_FIELDS = [reader_pb2.ColumnsFrame.DESCRIPTOR.fields_by_name[name].number for name in _ARRAYS]


def series_block(
    partition: int, series_ids: NDArray[np.uint64], labels: tuple[bytes, NDArray[np.uint32]] | None
) -> common_pb2.SeriesBlock:
    """Series of a partition, ascending by id; labels are (joined, lengths)."""
    block = common_pb2.SeriesBlock(partition=partition, series_ids=series_ids.astype("<u8", copy=False).tobytes())
    if labels is not None:
        block.labels = bytes(labels[0])
        block.label_lengths = labels[1].astype("<u4", copy=False).tobytes()
    return block


def raw_frames(partition: int, raw: RawResult, *, overlay: bool = False) -> Iterator[Fields]:
    """RawFrames of samples, cut at FRAME_SAMPLES_MAX. A larger series continues in the next frame. Arrays are
    referenced, not copied, until the frame is joined."""
    if not raw.samples:
        return
    if raw.samples <= FRAME_SAMPLES_MAX:
        yield _raw_frame(partition, raw, 0, raw.counts, slice(None), overlay)
        return
    counts = raw.counts.astype(np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1])
    for start in range(0, total, FRAME_SAMPLES_MAX):
        end = min(start + FRAME_SAMPLES_MAX, total)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, end, side="left"))
        part = np.minimum(ends[first : last + 1], end) - np.maximum(
            ends[first : last + 1] - counts[first : last + 1], start
        )
        yield _raw_frame(partition, raw, first, part, slice(start, end), overlay)


def _raw_frame(
    partition: int, raw: RawResult, first: int, counts: NDArray[Any], samples: slice, overlay: bool
) -> Fields:
    head = reader_pb2.RawFrame(partition=partition, first_series=first, overlay=overlay)
    frame = Fields(head.SerializeToString())
    frame.add_array(_COUNTS, counts.astype("<u4", copy=False))
    frame.add_array(_TS_MS, raw.ts_ms[samples])
    frame.add_array(_VALUES, raw.values[samples])
    if raw.orders is not None:
        frame.add_array(_ORDERS, raw.orders[samples])
    return frame


def column_frames(partition: int, columns: SealedColumns) -> Iterator[Fields]:
    """ColumnsFrames of columns, cut at FRAME_BYTES_MAX of data.

    Every frame carries the range of axes that its columns refer to. Arrays are not copied.
    """
    total = len(columns.series_index)
    if len(columns.data) <= FRAME_BYTES_MAX:
        if total:
            yield _column_frame(partition, columns)
        return
    ends = np.cumsum(columns.column_lengths, dtype=np.int64)
    first, start = 0, 0
    while first < total:
        last = max(first + 1, int(np.searchsorted(ends, start + FRAME_BYTES_MAX, side="right")))
        end = int(ends[last - 1])
        yield _column_frame(partition, _part(columns, slice(first, last), slice(start, end)))
        first, start = last, end


def _column_frame(partition: int, columns: SealedColumns) -> Fields:
    frame = Fields(reader_pb2.ColumnsFrame(partition=partition).SerializeToString())
    for number, array in zip(_ARRAY_FIELDS, _arrays(columns), strict=True):
        frame.add_array(number, array)
    return frame


def _arrays(columns: SealedColumns) -> tuple[NDArray[Any], ...]:
    """The arrays in the order of _ARRAYS."""
    return (
        columns.series_index,
        columns.column_lengths,
        columns.axis_index,
        columns.axis_base_ms,
        columns.axis_lengths,
        columns.axis_counts,
        columns.axes,
        columns.data,
    )


def _part(columns: SealedColumns, part: slice, data: slice) -> SealedColumns:
    """The columns of `part`, a range of positions. `data` is the byte range of their values."""
    axis_index = columns.axis_index[part]
    axes = slice(int(axis_index.min()), int(axis_index.max()) + 1)
    axis_data = slice(
        int(columns.axis_lengths[: axes.start].sum(dtype=np.int64)),
        int(columns.axis_lengths[: axes.stop].sum(dtype=np.int64)),
    )
    return SealedColumns(
        samples=columns.samples,
        series_index=columns.series_index[part],
        column_lengths=columns.column_lengths[part],
        axis_index=axis_index - np.uint32(axes.start),
        axis_base_ms=columns.axis_base_ms[axes],
        axis_lengths=columns.axis_lengths[axes],
        axis_counts=columns.axis_counts[axes],
        axes=columns.axes[axis_data],
        data=columns.data[data],
    )

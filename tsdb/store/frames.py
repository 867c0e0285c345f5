"""Frames: what a head gathered, cut into frames, and frames put together into messages of the Reader service.

Few large messages: each costs two hand-overs between threads, more than moving 100 KiB does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tsdb.head.gather import Columns, RawResult
from tsdb.v1 import common_pb2, reader_pb2

FRAME_SAMPLES_MAX = 64 * 1024  # 1 MiB of (timestamp, value).
FRAME_BYTES_MAX = 1 << 20


def series_block(
    partition: int, series_ids: NDArray[np.uint64], labels: tuple[bytes, NDArray[np.uint32]] | None
) -> common_pb2.SeriesBlock:
    """Series of a partition, ascending by id; labels are (joined, lengths)."""
    block = common_pb2.SeriesBlock(partition=partition, series_ids=series_ids.astype("<u8", copy=False).tobytes())
    if labels is not None:
        block.labels = bytes(labels[0])
        block.label_lengths = labels[1].astype("<u4", copy=False).tobytes()
    return block


def raw_frames(partition: int, raw: RawResult, *, overlay: bool = False) -> Iterator[reader_pb2.RawFrame]:
    """RAW samples cut at FRAME_SAMPLES_MAX; a series larger than that goes on in the next frame."""
    if not raw.samples:
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
        yield reader_pb2.RawFrame(
            partition=partition,
            first_series=first,
            counts=part.astype("<u4").tobytes(),
            ts_ms=raw.ts_ms[start:end].tobytes(),
            values=raw.values[start:end].tobytes(),
            orders=b"" if raw.orders is None else raw.orders[start:end].tobytes(),
            overlay=overlay,
        )


def column_frames(partition: int, columns: Columns) -> Iterator[reader_pb2.ColumnsFrame]:
    """Columns cut at FRAME_BYTES_MAX of data; every frame has the axes that its columns lie between."""
    total = len(columns.series_index)
    if len(columns.data) <= FRAME_BYTES_MAX:
        if total:
            yield _whole_frame(partition, columns)
        return
    ends = np.cumsum(columns.column_lengths, dtype=np.int64)
    first, start = 0, 0
    while first < total:
        last = max(first + 1, int(np.searchsorted(ends, start + FRAME_BYTES_MAX, side="right")))
        end = int(ends[last - 1])
        yield _column_frame(partition, columns, slice(first, last), slice(start, end))
        first, start = last, end


def _whole_frame(partition: int, columns: Columns) -> reader_pb2.ColumnsFrame:
    return reader_pb2.ColumnsFrame(
        partition=partition,
        series_index=columns.series_index.tobytes(),
        column_lengths=columns.column_lengths.tobytes(),
        axis_index=columns.axis_index.tobytes(),
        axis_base_ms=columns.axis_base_ms.tobytes(),
        axis_lengths=columns.axis_lengths.tobytes(),
        axis_counts=columns.axis_counts.tobytes(),
        axes=columns.axes.tobytes(),
        data=columns.data.tobytes(),
    )


def _column_frame(partition: int, columns: Columns, part: slice, data: slice) -> reader_pb2.ColumnsFrame:
    axis_index = columns.axis_index[part]
    axes = slice(int(axis_index.min()), int(axis_index.max()) + 1)
    first_axis = axes.start
    axis_data = slice(
        int(columns.axis_lengths[:first_axis].sum(dtype=np.int64)),
        int(columns.axis_lengths[: axes.stop].sum(dtype=np.int64)),
    )
    return reader_pb2.ColumnsFrame(
        partition=partition,
        series_index=columns.series_index[part].tobytes(),
        column_lengths=columns.column_lengths[part].tobytes(),
        axis_index=(axis_index - np.uint32(first_axis) if first_axis else axis_index).tobytes(),
        axis_base_ms=columns.axis_base_ms[axes].tobytes(),
        axis_lengths=columns.axis_lengths[axes].tobytes(),
        axis_counts=columns.axis_counts[axes].tobytes(),
        axes=columns.axes[axis_data].tobytes(),
        data=columns.data[data].tobytes(),
    )

"""Reads chunks: header and directory first, then columns into arrays of exactly the claimed size.

Layout: docs/formats/chunk.md. Nothing is trusted: every count is checked against the bytes that are there before the
caller allocates for it, and every position stays within the chunk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import unzigzag
from tsdb.codec.chunk.chunk_kernels import SAMPLES_MAX
from tsdb.codec.columns.columns_kernels import decode_values_kernel
from tsdb.codec.columns.times_kernels import decode_times_kernel
from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import load_u64
from tsdb.codec.varint_kernels import get_varint

OK, BROKEN, TOO_MANY_SAMPLES = 0, -1, -2

# Indexes of the header's fields.
WINDOW_MS, WINDOW_INDEX, SERIES, AXES, IDS_AT, SAMPLES, ORDERS_AT = range(7)
HEAD_SIZE = 7

_ID_BYTES = 8
_TIME_MAX = 1 << 61  # Times beyond it exceed 64 bits in the arithmetic of ranges.
_HEADER_AT = 11


@kernel
def read_header_kernel(data: NDArray[np.uint8], end: int, head: NDArray[np.int64]) -> int:
    """Fill head from data[:end], which has no checksum; series and axes are then no more than the bytes can hold."""
    window_ms, pos = get_varint(data, _HEADER_AT, end)
    index, series, axes = 0, 0, 0
    if pos >= 0:
        index, pos = get_varint(data, pos, end)
    if pos >= 0:
        series, pos = get_varint(data, pos, end)
    if pos >= 0:
        axes, pos = get_varint(data, pos, end)
    if pos < 0 or series < 1 or series > (end - pos) // _ID_BYTES or axes < 1 or axes > series:
        return BROKEN
    index = unzigzag(index)
    if window_ms < 1 or window_ms > _TIME_MAX or abs(index) > _TIME_MAX // window_ms:
        return BROKEN
    head[WINDOW_MS], head[WINDOW_INDEX], head[SERIES], head[AXES], head[IDS_AT] = window_ms, index, series, axes, pos
    return OK


@kernel
def read_directory_kernel(
    data: NDArray[np.uint8],
    end: int,
    head: NDArray[np.int64],
    series_id: NDArray[np.uint64],
    sample_start: NDArray[np.int64],
    axis_of: NDArray[np.int64],
    axis_at: NDArray[np.int64],
    axis_end: NDArray[np.int64],
    axis_count: NDArray[np.int64],
) -> int:
    """Read ids, axes and the axis of each series; set SAMPLES and ORDERS_AT. The header gives the lengths of the
    arrays."""
    pos = head[IDS_AT]
    for series in range(series_id.size):
        series_id[series] = load_u64(data, pos)
        pos += _ID_BYTES
        if series and series_id[series] <= series_id[series - 1]:
            return BROKEN
    for axis in range(axis_at.size):
        count, pos = get_varint(data, pos, end)
        if pos < 0 or count < 1:
            return BROKEN
        if count > SAMPLES_MAX:
            return TOO_MANY_SAMPLES
        length, pos = get_varint(data, pos, end)
        if pos < 0 or length < 1 or length > end - pos:
            return BROKEN
        axis_count[axis], axis_at[axis] = count, pos
        pos += length
        axis_end[axis] = pos
    used, samples = 0, 0
    for series in range(series_id.size):
        axis = 0
        if axis_at.size > 1:
            axis, pos = get_varint(data, pos, end)
            if pos < 0 or axis < 0 or axis > used or axis >= axis_at.size:
                return BROKEN
        used = max(used, axis + 1)
        axis_of[series], sample_start[series] = axis, samples
        samples += axis_count[axis]
        if samples > SAMPLES_MAX:
            return TOO_MANY_SAMPLES
    sample_start[series_id.size] = samples
    head[SAMPLES], head[ORDERS_AT] = samples, pos
    return OK if used == axis_at.size else BROKEN


@kernel
def read_samples_kernel(
    data: NDArray[np.uint8],
    end: int,
    head: NDArray[np.int64],
    sample_start: NDArray[np.int64],
    axis_of: NDArray[np.int64],
    axis_at: NDArray[np.int64],
    axis_end: NDArray[np.int64],
    axis_count: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> int:
    """Fill the columns, each as long as SAMPLES says."""
    status = _read_times(data, head, sample_start, axis_of, axis_at, axis_end, axis_count, ts)
    pos = _read_orders(data, head[ORDERS_AT], end, orders) if status == OK else BROKEN
    if pos < 0:
        return BROKEN
    for series in range(axis_of.size):
        stop = end
        if series < axis_of.size - 1:
            length, pos = get_varint(data, pos, end)
            if pos < 0 or length < 0 or length > end - pos:
                return BROKEN
            stop = pos + length
        start = sample_start[series]
        if decode_values_kernel(data, pos, stop, sample_start[series + 1] - start, values, start) != stop:
            return BROKEN
        pos = stop
    return OK


@helper
def _read_times(
    data: NDArray[np.uint8],
    head: NDArray[np.int64],
    sample_start: NDArray[np.int64],
    axis_of: NDArray[np.int64],
    axis_at: NDArray[np.int64],
    axis_end: NDArray[np.int64],
    axis_count: NDArray[np.int64],
    ts: NDArray[np.int64],
) -> int:
    window_ms = head[WINDOW_MS]
    start_ms = window_ms * head[WINDOW_INDEX]
    first_at = np.full(axis_at.size, -1, np.int64)
    for series in range(axis_of.size):
        axis, to = axis_of[series], sample_start[series]
        count = axis_count[axis]
        if first_at[axis] >= 0:
            for index in range(count):
                ts[to + index] = ts[first_at[axis] + index]
            continue
        first_at[axis] = to
        if decode_times_kernel(data, axis_at[axis], axis_end[axis], count, ts, to) != axis_end[axis]:
            return BROKEN
        before = -1
        for index in range(to, to + count):
            if ts[index] <= before or ts[index] >= window_ms:
                return BROKEN
            before = ts[index]
            ts[index] = before + start_ms
    return OK


@helper
def _read_orders(data: NDArray[np.uint8], pos: int, end: int, orders: NDArray[np.int64]) -> int:
    runs, pos = get_varint(data, pos, end)
    if pos < 0 or runs < 1 or runs > orders.size:
        return BROKEN
    order, at = 0, 0
    for run in range(runs):
        change, pos = get_varint(data, pos, end)
        length = orders.size - at
        if pos >= 0 and run < runs - 1:
            length, pos = get_varint(data, pos, end)
        if pos < 0 or length < 1 or length > orders.size - at or (run and change == 0):
            return BROKEN
        order += unzigzag(change)
        if order < 0:
            return BROKEN
        orders[at : at + length] = order
        at += length
    return pos if at == orders.size else BROKEN

"""Writes chunks: columns, shared time axes, where to cut parts, and the bytes of one part.

Layout: docs/formats/chunk.md. Everything is encoded once for the whole fragment; a part copies the bytes of its series.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import zigzag
from tsdb.codec.columns.columns_kernels import encode_values_dense_kernel
from tsdb.codec.columns.times_kernels import encode_times_dense_kernel
from tsdb.codec.crc32c_kernels import crc32c_kernel
from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import copy_bytes, store_u32, store_u64
from tsdb.codec.varint_kernels import put_varint

MAGIC = 0xC4
VERSION = 1
CODEC = 1  # Version of the codec of the columns, docs/formats/columns.md.
CRC_BYTES = 4
SAMPLES_MAX = 1 << 21
"""Samples and bucket counts together. A regular series takes a dozen bytes, however long it is; this bounds what
decoding allocates."""

HEADER_BOUND = 64  # Bytes of header, counts and checksum, at most 48.
SERIES_BOUND = 18  # Bytes of a series' id, axis number and column length.
AXIS_BOUND = 10  # Bytes of the count and the length of an axis.
RUN_BOUND = 15  # Bytes of the order and the length of a run.

_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@kernel
def encode_columns_kernel(
    sample_start: NDArray[np.int64],
    values: NDArray[np.float64],
    out: NDArray[np.uint8],
    column_end: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> int:
    """Encode one column for each series, back to back; fills column_end (k,). Returns the number of bytes."""
    pos = 0
    for series in range(column_end.size):
        start, end = sample_start[series], sample_start[series + 1]
        pos = encode_values_dense_kernel(values, start, end - start, out, pos, scratch)
        column_end[series] = pos
    return pos


@kernel
def share_axes_kernel(
    sample_start: NDArray[np.int64],
    ts: NDArray[np.int64],
    axis_of: NDArray[np.int64],
    axis_series: NDArray[np.int64],
    table: NDArray[np.int64],
) -> int:
    """Number the distinct runs of timestamps: axis_of (k,), and axis_series (k,), the first series that has each.

    table: zeros, a power of two of at least 2 k. Returns how many axes there are.
    """
    axes, mask = 0, np.uint64(table.size - 1)
    for series in range(axis_of.size):
        start, end = sample_start[series], sample_start[series + 1]
        place = _hash_of(ts, start, end) & mask
        while table[place] and not _same_times(sample_start, ts, axis_series[table[place] - 1], start, end):
            place = (place + np.uint64(1)) & mask
        if table[place] == 0:
            axis_series[axes] = series
            axes += 1
            table[place] = axes
        axis_of[series] = table[place] - 1
    return axes


@helper
def _hash_of(ts: NDArray[np.int64], start: int, end: int) -> int:
    found = np.uint64(end - start)
    for index in range(start, end):
        found = (found ^ np.uint64(ts[index])) * _HASH_FACTOR
        found ^= found >> np.uint64(29)
    return found  # type: ignore[return-value]  # numba's integers are all of numpy's


@helper
def _same_times(sample_start: NDArray[np.int64], ts: NDArray[np.int64], series: int, start: int, end: int) -> bool:
    other = sample_start[series]
    if sample_start[series + 1] - other != end - start:
        return False
    for index in range(end - start):  # noqa: SIM110  # numba compiles no generator
        if ts[other + index] != ts[start + index]:
            return False
    return True


@kernel
def encode_axes_kernel(
    sample_start: NDArray[np.int64],
    ts: NDArray[np.int64],
    axis_series: NDArray[np.int64],
    axes: int,
    out: NDArray[np.uint8],
    axis_end: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> int:
    """Encode the axes back to back; fills axis_end (axes,). Returns the number of bytes."""
    pos = 0
    for axis in range(axes):
        start, end = sample_start[axis_series[axis]], sample_start[axis_series[axis] + 1]
        pos = encode_times_dense_kernel(ts, start, end - start, out, pos, scratch)
        axis_end[axis] = pos
    return pos


@kernel
def cut_parts_kernel(
    sample_start: NDArray[np.int64],
    orders: NDArray[np.int64],
    column_end: NDArray[np.int64],
    axis_of: NDArray[np.int64],
    axis_end: NDArray[np.int64],
    detail_bytes: NDArray[np.int64],
    bucket_counts: NDArray[np.int64],
    bytes_max: int,
    cuts: NDArray[np.int64],
    bounds: NDArray[np.int64],
) -> int:
    """Where parts end: part p has the series before cuts[p] and at most bounds[p] bytes. Returns how many there are.

    detail_bytes, bucket_counts: the bound of each series' details and its bucket counts, (k,), or empty without
    details. A series that alone takes over bytes_max, or has too many samples and bucket counts, is a separate part
    with bounds[p] = -1.
    """
    parts, size, samples, first = 0, HEADER_BOUND, 0, 0
    axis_part = np.full(axis_end.size, -1, np.int64)
    for series in range(column_end.size):
        start, end = sample_start[series], sample_start[series + 1]
        own = SERIES_BOUND + _length(column_end, series) + RUN_BOUND * _runs(orders, start, end)
        claims = end - start
        if detail_bytes.size:
            own += detail_bytes[series]
            claims += bucket_counts[series]
        axis = axis_of[series]
        axis_bytes = AXIS_BOUND + _length(axis_end, axis)
        more = own if axis_part[axis] == parts else own + axis_bytes
        if series > first and (size + more > bytes_max or samples + claims > SAMPLES_MAX):
            cuts[parts], bounds[parts] = series, size
            parts, size, samples, first, more = parts + 1, HEADER_BOUND, 0, series, own + axis_bytes
        axis_part[axis] = parts
        size += more
        samples += claims
        if series == first and (size > bytes_max or samples > SAMPLES_MAX):
            cuts[parts], bounds[parts] = series + 1, -1
            parts, size, samples, first = parts + 1, HEADER_BOUND, 0, series + 1
    if first < column_end.size:
        cuts[parts], bounds[parts] = column_end.size, size
        parts += 1
    return parts


@helper
def _length(ends: NDArray[np.int64], index: int) -> int:
    return ends[index] - (ends[index - 1] if index else 0)  # type: ignore[no-any-return]


@helper
def _runs(orders: NDArray[np.int64], start: int, end: int) -> int:
    runs = 1
    for index in range(start + 1, end):
        runs += orders[index] != orders[index - 1]
    return runs


@kernel
def write_part_kernel(
    pack_id: np.uint64,
    window_ms: int,
    window_index: int,
    series_id: NDArray[np.uint64],
    sample_start: NDArray[np.int64],
    orders: NDArray[np.int64],
    first: int,
    last: int,
    columns: NDArray[np.uint8],
    column_end: NDArray[np.int64],
    axis_of: NDArray[np.int64],
    axis_data: NDArray[np.uint8],
    axis_end: NDArray[np.int64],
    axis_series: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Write the part with the series [first, last) to out. Returns its bytes. pack_id: uint64."""
    local, used = _local_axes(axis_of, axis_end.size, first, last)
    out[0], out[1], out[2] = MAGIC, VERSION, CODEC
    store_u64(out, 3, np.uint64(pack_id))
    pos = put_varint(window_ms, out, 11)
    pos = put_varint(zigzag(window_index), out, pos)
    pos = put_varint(last - first, out, pos)
    pos = put_varint(used.size, out, pos)
    for series in range(first, last):
        store_u64(out, pos, series_id[series])
        pos += 8
    for axis in used:
        length, at = _length(axis_end, axis), axis_end[axis] - _length(axis_end, axis)
        pos = put_varint(sample_start[axis_series[axis] + 1] - sample_start[axis_series[axis]], out, pos)
        pos = put_varint(length, out, pos)
        copy_bytes(out, pos, axis_data, at, length)
        pos += length
    if used.size > 1:
        for series in range(first, last):
            pos = put_varint(local[axis_of[series]], out, pos)
    pos = _write_orders(orders, sample_start[first], sample_start[last], out, pos)
    for series in range(first, last):
        length = _length(column_end, series)
        if series < last - 1:
            pos = put_varint(length, out, pos)
        copy_bytes(out, pos, columns, column_end[series] - length, length)
        pos += length
    store_u32(out, pos, np.uint32(crc32c_kernel(out, 0, pos)))
    return pos + CRC_BYTES


@helper
def _local_axes(
    axis_of: NDArray[np.int64], axes: int, first: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(number of each axis within the part, axes of the part), numbered in the order that series first use them."""
    local, used = np.full(axes, -1, np.int64), np.empty(min(axes, last - first), np.int64)
    count = 0
    for series in range(first, last):
        axis = axis_of[series]
        if local[axis] < 0:
            local[axis] = count
            used[count] = axis
            count += 1
    return local, used[:count]


@helper
def _write_orders(orders: NDArray[np.int64], start: int, end: int, out: NDArray[np.uint8], pos: int) -> int:
    pos = put_varint(_runs(orders, start, end), out, pos)
    before, at = 0, start
    while at < end:
        stop = at + 1
        while stop < end and orders[stop] == orders[at]:
            stop += 1
        pos = put_varint(zigzag(orders[at] - before), out, pos)
        if stop < end:
            pos = put_varint(stop - at, out, pos)
        before, at = orders[at], stop
    return pos

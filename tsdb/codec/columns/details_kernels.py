"""Kernels of details: runs of histograms, columns of their counts, and the start columns of groups of samples.

Layout: docs/formats/details.md. Every count is checked against the bytes and the array that it fills.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.columns_kernels import (
    decode_values_kernel,
    encode_values_dense_kernel,
    encode_values_kernel,
)
from tsdb.codec.columns.starts_kernels import decode_starts_kernel, encode_starts_kernel
from tsdb.codec.jit import kernel
from tsdb.codec.memory_kernels import load_i64, store_i64
from tsdb.codec.varint_kernels import get_varint, put_varint

FLOAT = -1  # Index of the histogram of a sample that is a float.
ATTRIBUTES_MAX = 15  # Two bits of the hint, a bit of integer counts, a bit of a count that is the total.
KIND_BYTES_MAX = 5  # Bytes of a run of floats or of histograms.
RUN_BYTES_MAX = 11  # Bytes of a run of samples with one shape and the same attributes.


@kernel
def encode_columns_of_kernel(
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    dense: int,
    out: NDArray[np.uint8],
    ends: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> int:
    """Encode the columns values[starts[i]:starts[i + 1]] back to back; fills ends (k,). Returns the bytes.

    dense: not 0 for the smaller and slower columns of chunks. scratch: as for the longest column.
    """
    pos = 0
    for column in range(ends.size):
        start, count = starts[column], starts[column + 1] - starts[column]
        if dense:
            pos = encode_values_dense_kernel(values, start, count, out, pos, scratch)
        else:
            pos = encode_values_kernel(values, start, count, out, pos, scratch)
        ends[column] = pos
    return pos


@kernel
def decode_columns_of_kernel(
    data: NDArray[np.uint8], pos: int, end: int, starts: NDArray[np.int64], values: NDArray[np.float64]
) -> int:
    """Fill values[starts[i]:starts[i + 1]] from columns that lie back to back. Returns the new position, or -1."""
    for column in range(starts.size - 1):
        pos = decode_values_kernel(data, pos, end, starts[column + 1] - starts[column], values, starts[column])
        if pos < 0:
            return -1
    return pos


@kernel
def encode_groups_of_starts_kernel(
    ts: NDArray[np.int64],
    starts: NDArray[np.int64],
    group_start: NDArray[np.int64],
    out: NDArray[np.uint8],
    ends: NDArray[np.int64],
) -> int:
    """Encode one start column for each group of samples, back to back; fills ends (g,). Returns the bytes."""
    pos = 0
    for group in range(ends.size):
        first, last = group_start[group], group_start[group + 1]
        pos = encode_starts_kernel(ts[first:last], starts[first:last], out, pos)
        ends[group] = pos
    return pos


@kernel
def decode_groups_of_starts_kernel(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    ts: NDArray[np.int64],
    group_start: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> int:
    """Fill starts (n,) from one start column for each group. Returns the new position, or -1."""
    for group in range(group_start.size - 1):
        first, last = group_start[group], group_start[group + 1]
        pos = decode_starts_kernel(data, pos, end, ts[first:last], starts[first:last])
        if pos < 0:
            return -1
    return pos


@kernel
def write_kinds_kernel(is_histogram: NDArray[np.bool_], out: NDArray[np.uint8]) -> int:
    """Write the lengths of the runs of floats and of histograms, in turn, to out. Returns the bytes."""
    pos, at, kind = 0, 0, False
    while at < is_histogram.size:
        first = at
        while at < is_histogram.size and is_histogram[at] == kind:
            at += 1
        pos = put_varint(at - first, out, pos)
        kind = not kind
    return pos


@kernel
def read_kinds_kernel(
    data: NDArray[np.uint8], pos: int, end: int, histogram_of: NDArray[np.int64], found: NDArray[np.int64]
) -> int:
    """Fill histogram_of (n,) with FLOAT or the number of the histogram, and found[0] with how many there are.

    Returns the new position, or -1.
    """
    at, histograms, is_histogram = 0, 0, False
    while at < histogram_of.size:
        length, pos = get_varint(data, pos, end)
        if pos < 0 or length < 0 or length > histogram_of.size - at or (length == 0 and (at or is_histogram)):
            return -1
        for index in range(at, at + length):
            histogram_of[index] = histograms + index - at if is_histogram else FLOAT
        if is_histogram:
            histograms += length
        at += length
        is_histogram = not is_histogram
    found[0] = histograms
    return pos


@kernel
def write_runs_kernel(
    shape_of: NDArray[np.int64],
    attributes: NDArray[np.uint8],
    numbers: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> int:
    """Write the runs of histograms with equal shape and attributes. Returns the bytes.

    numbers: -1 for each shape; filled with the number of each shape that is used, in the order of first use.
    """
    pos, at, used = 0, 0, 0
    while at < shape_of.size:
        first = at
        shape, attribute = shape_of[at], attributes[at]
        while at < shape_of.size and shape_of[at] == shape and attributes[at] == attribute:
            at += 1
        if numbers[shape] < 0:
            numbers[shape] = used
            used += 1
        pos = put_varint(at - first, out, pos)
        out[pos] = attribute
        pos = put_varint(numbers[shape], out, pos + 1)
    return pos


@kernel
def read_runs_kernel(
    data: NDArray[np.uint8],
    pos: int,
    end: int,
    shapes: int,
    shape_of: NDArray[np.int64],
    attributes: NDArray[np.uint8],
) -> int:
    """Fill shape_of and attributes (h,). All `shapes` are used, each first after the one before. Returns the new
    position, or -1."""
    at, used = 0, 0
    while at < shape_of.size:
        length, pos = get_varint(data, pos, end)
        if pos < 0 or length < 1 or length > shape_of.size - at or pos >= end or data[pos] > ATTRIBUTES_MAX:
            return -1
        attribute = data[pos]
        shape, pos = get_varint(data, pos + 1, end)
        if pos < 0 or shape < 0 or shape > used or shape >= shapes:
            return -1
        if at and shape_of[at - 1] == shape and attributes[at - 1] == attribute:
            return -1
        used = max(used, shape + 1)
        shape_of[at : at + length] = shape
        attributes[at : at + length] = attribute
        at += length
    return pos if used == shapes else -1


@kernel
def totals_kernel(
    starts: NDArray[np.int64],
    buckets: NDArray[np.float64],
    zero_counts: NDArray[np.float64],
    totals: NDArray[np.float64],
) -> None:
    """Fill totals (h,): the zero count and the bucket counts of each histogram, added in this order."""
    for histogram in range(totals.size):
        total = zero_counts[histogram]
        for index in range(starts[histogram], starts[histogram + 1]):
            total += buckets[index]
        totals[histogram] = total


@kernel
def column_starts_kernel(
    run_length: NDArray[np.int64],
    run_pair: NDArray[np.int64],
    pair_start: NDArray[np.int64],
    column_of: NDArray[np.int64],
    column_start: NDArray[np.int64],
) -> None:
    """Fill column_start (c + 1,): where each bucket's column begins. The buckets of pair p are in the columns
    column_of[pair_start[p]:pair_start[p + 1]]."""
    column_start[:] = 0
    for run in range(run_length.size):
        pair = run_pair[run]
        for place in range(pair_start[pair], pair_start[pair + 1]):
            column_start[column_of[place] + 1] += run_length[run]
    for column in range(column_start.size - 1):
        column_start[column + 1] += column_start[column]


@kernel
def transpose_kernel(
    run_length: NDArray[np.int64],
    run_pair: NDArray[np.int64],
    pair_start: NDArray[np.int64],
    column_of: NDArray[np.int64],
    filled: NDArray[np.int64],
    rows: NDArray[np.float64],
    columns: NDArray[np.float64],
    to_rows: int,
) -> None:
    """Copy counts between rows, the buckets of one histogram after another, and columns, one after another.

    Both have as many items as the histograms of all runs have buckets. Bits are kept. filled: where each column begins;
    afterwards where it ends.
    """
    row = 0
    for run in range(run_length.size):
        pair = run_pair[run]
        for _ in range(run_length[run]):
            for place in range(pair_start[pair], pair_start[pair + 1]):
                column = filled[column_of[place]]
                filled[column_of[place]] = column + 1
                if to_rows:
                    store_i64(rows, 8 * row, load_i64(columns, 8 * column))
                else:
                    store_i64(columns, 8 * column, load_i64(rows, 8 * row))
                row += 1

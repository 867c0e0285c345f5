"""Seal: encodes runs of samples as the columns of a sealed slice, with one time axis for all series that share it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.columns_kernels import encode_times_kernel, encode_values_kernel, times_bound, values_bound
from tsdb.codec.jit import helper, kernel
from tsdb.head.slices.address_kernels import signed

# Items of a builder's `at`: the sizes filled so far, the samples, and the highest order.
AT_COLUMNS, AT_DATA, AT_AXES, AT_TIMES, AT_ORDERS, AT_SAMPLES, AT_ORDER_MAX = range(7)
AT_SIZE = 7

# Odd constants of xxHash64; the hash never leaves the process.
_MIX = np.uint64(0x9E3779B185EBCA87)
_SEED = np.uint64(0xC2B2AE3D27D4EB4F)


@kernel
def bounds_kernel(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> tuple[int, int, int]:
    """Bounds over the runs: most bytes of the encoding, number of samples, and samples of the longest run."""
    encoded, samples, longest = signed(0), signed(0), signed(0)
    for which in range(ends.size):
        count = ends[which] - starts[which]
        encoded += values_bound(count)
        samples += count
        longest = max(longest, count)
    return encoded, samples, longest


@kernel
def encode_columns_kernel(
    refs: NDArray[np.uint32],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
    base_ms: int,
    at: NDArray[np.int64],
    slot_ref: NDArray[np.uint32],
    column_end: NDArray[np.uint32],
    axis_of: NDArray[np.uint32],
    data: NDArray[np.uint8],
    axis_hash: NDArray[np.uint64],
    axis_start: NDArray[np.int64],
    times: NDArray[np.int64],
    table: NDArray[np.uint32],
    order_end: NDArray[np.uint32],
    order_data: NDArray[np.uint8],
    scratch: NDArray[np.int64],
) -> None:
    """Add a column for each run that is not empty, from `at` on; updates `at`. All arrays have capacity for all
    columns.

    times holds the distinct axes back to back, ms from base_ms; axis a is times[axis_start[a]:axis_start[a + 1]].
    table: open addressing over axis_hash, axis + 1 or 0. orders, order_end, order_data: empty when not kept; a run
    without a late sample gets no order bytes.

    """
    mask = np.uint64(table.size - 1)
    for which in range(ends.size):
        start, count = starts[which], ends[which] - starts[which]
        if count == 0:
            continue
        column = at[AT_COLUMNS]
        axis_of[column] = _axis(ts, start, count, base_ms, at, axis_hash, axis_start, times, table, mask)
        at[AT_DATA] = encode_values_kernel(values, start, count, data, at[AT_DATA], scratch)
        slot_ref[column], column_end[column] = refs[which], at[AT_DATA]
        if orders.size:
            _encode_orders(orders, start, count, order_data, at, scratch)
            order_end[column] = at[AT_ORDERS]
        at[AT_COLUMNS] = column + 1
        at[AT_SAMPLES] += count


@helper
def _axis(
    ts: NDArray[np.int64],
    start: int,
    count: int,
    base_ms: int,
    at: NDArray[np.int64],
    axis_hash: NDArray[np.uint64],
    axis_start: NDArray[np.int64],
    times: NDArray[np.int64],
    table: NDArray[np.uint32],
    mask: np.uint64,
) -> int:
    """Number of the axis with these times. Adds the axis when it is new."""
    digest = _SEED ^ np.uint64(count)
    for index in range(start, start + count):
        digest = (digest ^ np.uint64(ts[index] - base_ms)) * _MIX
        digest ^= digest >> np.uint64(29)
    place = digest & mask
    while table[place]:
        axis = signed(table[place]) - 1
        if axis_hash[axis] == digest and _same(
            times, axis_start[axis], axis_start[axis + 1], ts, start, count, base_ms
        ):
            return axis
        place = (place + np.uint64(1)) & mask
    axis, end = signed(at[AT_AXES]), signed(at[AT_TIMES])
    for index in range(count):
        times[end + index] = ts[start + index] - base_ms
    axis_hash[axis], axis_start[axis + 1] = digest, end + count
    table[place] = axis + 1
    at[AT_AXES], at[AT_TIMES] = axis + 1, end + count
    return axis


@helper
def _same(
    times: NDArray[np.int64], begin: int, end: int, ts: NDArray[np.int64], start: int, count: int, base_ms: int
) -> bool:
    if end - begin != count:
        return False
    for index in range(count):  # noqa: SIM110  # a kernel has no generators
        if times[begin + index] != ts[start + index] - base_ms:
            return False
    return True


@helper
def _encode_orders(
    orders: NDArray[np.int64],
    start: int,
    count: int,
    out: NDArray[np.uint8],
    at: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> None:
    highest = signed(-1)
    for index in range(start, start + count):
        highest = max(highest, orders[index])
    if highest < 0:
        return
    numbers = np.empty(count, np.float64)
    for index in range(count):
        numbers[index] = np.float64(orders[start + index])
    at[AT_ORDERS] = encode_values_kernel(numbers, 0, count, out, at[AT_ORDERS], scratch)
    at[AT_ORDER_MAX] = max(at[AT_ORDER_MAX], highest)


@kernel
def rehash_kernel(axis_hash: NDArray[np.uint64], axes: int, table: NDArray[np.uint32]) -> None:
    """Fill a new table of zeros with the first `axes` axes."""
    mask = np.uint64(table.size - 1)
    for axis in range(axes):
        place = axis_hash[axis] & mask
        while table[place]:
            place = (place + np.uint64(1)) & mask
        table[place] = axis + 1


@kernel
def times_bounds_kernel(axis_start: NDArray[np.int64], axes: int) -> int:
    """Bytes that encoding of all axes may need at worst."""
    total = signed(0)
    for axis in range(axes):
        total += times_bound(axis_start[axis + 1] - axis_start[axis])
    return total


@kernel
def encode_axes_kernel(
    times: NDArray[np.int64],
    axis_start: NDArray[np.int64],
    axes: int,
    axis_end: NDArray[np.uint32],
    axis_count: NDArray[np.uint32],
    out: NDArray[np.uint8],
    scratch: NDArray[np.int64],
) -> int:
    """Encode the axes back to back; returns their bytes."""
    position = 0
    for axis in range(axes):
        start, count = axis_start[axis], axis_start[axis + 1] - axis_start[axis]
        position = encode_times_kernel(times, start, count, out, position, scratch)
        axis_end[axis], axis_count[axis] = position, count
    return position

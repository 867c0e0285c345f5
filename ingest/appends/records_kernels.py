"""Kernel that writes the log records of one request, one behind the other. Twin: one encode_record a range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.records.log_record_kernels import encode_record_kernel


@short_kernel
def encode_ranges_kernel(
    range_start: NDArray[np.int64],
    range_end: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    pack_end: NDArray[np.int64],
    series_id: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    pack_length: NDArray[np.uint32],
    out: NDArray[np.uint8],
    out_end: NDArray[np.int64],
    newest_ms: NDArray[np.int64],
) -> int:
    """Record i, of samples [range_start[i], range_end[i]), ends at out_end[i]; newest_ms[i] is its latest timestamp.

    pack_length is scratch, one per pack. Returns the end of the last record, or an error code of encode_record_kernel.
    """
    position = 0
    for index in range(range_start.size):
        at, end = range_start[index], range_end[index]
        first_pack = _pack_of(pack_end, at)
        last_pack = first_pack
        while at < end:
            stop = min(pack_end[last_pack], end)
            pack_length[last_pack] = stop - at
            at = stop
            last_pack += 1
        start = range_start[index]
        position = encode_record_kernel(
            pack_id, pack_length, first_pack, last_pack, series_id, ts_ms, values, start, out, position
        )
        if position < 0:
            return position
        out_end[index] = position
        newest_ms[index] = _newest(ts_ms, start, end)
    return position


@helper
def _pack_of(pack_end: NDArray[np.int64], sample: int) -> int:
    """The first pack that ends behind the sample."""
    low, high = 0, pack_end.size
    while low < high:
        middle = (low + high) >> 1
        if pack_end[middle] <= sample:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def _newest(ts_ms: NDArray[np.int64], start: int, end: int) -> int:
    newest = ts_ms[start]
    for index in range(start + 1, end):
        newest = max(newest, ts_ms[index])
    return int(newest)

"""Kernel that writes the log records of one request, one behind the other. Twin: one encode_record a range.

Kernel that joins several log records of one partition to one.

Twin: `sorted` by (pack_id, series_id) over the samples of all records, encoded by encode_record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.grouping_kernels import fill_groups_kernel, order_rows_kernel
from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.records.log_record_decode_kernels import fill_records_kernel, scan_records_kernel
from tsdb.codec.records.log_record_kernels import BAD_LENGTHS, encode_record_kernel


@short_kernel
def join_records_kernel(data: NDArray[np.uint8], starts: NDArray[np.int64], out: NDArray[np.uint8]) -> int:
    """Write the samples of the records data[starts[i]:starts[i + 1]] as one record at out[0:].

    Returns its size, an error of encode_record_kernel, or BAD_LENGTHS when a record is not sound.
    """
    records = starts.size - 1
    status, flags = np.empty(records, np.uint8), np.empty(records, np.uint8)
    pack_start, sample_start = np.empty(records + 1, np.int64), np.empty(records + 1, np.int64)
    scan_records_kernel(data, starts, status, flags, pack_start, sample_start)
    if status.any():
        return BAD_LENGTHS
    packs, samples = pack_start[records], sample_start[records]
    pack_id, pack_length, id_hash = np.empty(packs, np.uint64), np.empty(packs, np.uint32), np.empty(packs, np.uint64)
    series_id, ts_ms, value = np.empty(samples, np.uint64), np.empty(samples, np.int64), np.empty(samples, np.float64)
    fill_records_kernel(
        data, starts, pack_start, sample_start, flags, pack_id, pack_length, id_hash, series_id, ts_ms, value
    )
    pack_of_sample = np.empty(samples, np.uint64)
    sample = 0
    for pack in range(packs):
        end = sample + int(pack_length[pack])
        pack_of_sample[sample:end] = pack_id[pack]
        sample = end
    one_partition = np.zeros(samples, np.int64)
    order, scratch = np.empty(samples, np.int64), np.empty(samples, np.int64)
    order_rows_kernel(np.full(samples, True), one_partition, pack_of_sample, series_id, order, scratch)
    row_start = np.arange(samples + 1)
    joined_id, joined_ms = np.empty(samples, np.uint64), np.empty(samples, np.int64)
    joined_bits, joined_pack = np.empty(samples, np.uint64), np.empty(samples, np.uint64)
    pack_end, partition, partition_end = np.empty(samples, np.int64), np.empty(1, np.int64), np.empty(1, np.int64)
    joined_packs, _ = fill_groups_kernel(
        order, row_start, one_partition, pack_of_sample, series_id, ts_ms, value.view(np.uint64),
        joined_id, joined_ms, joined_bits, joined_pack, pack_end, partition, partition_end,
    )  # fmt: skip
    joined_length = np.empty(joined_packs, np.uint32)
    before = np.int64(0)
    for pack in range(joined_packs):
        joined_length[pack] = pack_end[pack] - before
        before = pack_end[pack]
    return encode_record_kernel(
        joined_pack, joined_length, 0, joined_packs, joined_id, joined_ms, joined_bits.view(np.float64), 0, out, 0
    )


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

"""Kernel that joins several log records of one partition to one.

Twin: `sorted` by (pack_id, series_id) over the samples of all records, encoded by encode_record.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.grouping_kernels import fill_groups_kernel, order_rows_kernel
from tsdb.codec.jit import short_kernel
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

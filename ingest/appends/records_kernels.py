"""Kernels of a request's log records: they bring samples into the order of the log (by partition, pack and series),
write the records of a request one behind the other, and join records of one partition to one.

Python twins: `sorted` by (partition, pack_id, series_id) and a loop over the sorted rows; one encode_record a range;
`sorted` by (pack_id, series_id) over the samples of all records, encoded by encode_record (tests/unit/ingest).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes
from tsdb.codec.records.log_record_decode_kernels import fill_records_kernel, scan_records_kernel
from tsdb.codec.records.log_record_kernels import BAD_LENGTHS, encode_record_kernel

RUN = 8  # Rows sorted by insertion before merging starts.
BUCKETS_A_ROW = 2  # Most buckets for each row.


@helper
def _after(
    a: int, b: int, partition: NDArray[np.int64], pack_id: NDArray[np.uint64], series_id: NDArray[np.uint64]
) -> bool:
    """Whether row a must come behind row b; False when equal, which keeps the sort stable."""
    if partition[a] != partition[b]:
        return bool(partition[a] > partition[b])
    if pack_id[a] != pack_id[b]:
        return bool(pack_id[a] > pack_id[b])
    return bool(series_id[a] > series_id[b])


@helper
def _sort_rows(
    low: int,
    high: int,
    partition: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    series_id: NDArray[np.uint64],
    order: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> None:
    """Sort order[low:high] by (partition, pack_id, series_id): a stable merge sort from below.

    Two runs that are in order already are not merged.
    """
    for first in range(low, high, RUN):
        for i in range(first + 1, min(first + RUN, high)):
            row = order[i]
            j = i
            while j > first and _after(order[j - 1], row, partition, pack_id, series_id):
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
    width = RUN
    while width < high - low:
        for first in range(low, high - width, 2 * width):
            middle, end = first + width, min(first + 2 * width, high)
            if not _after(order[middle - 1], order[middle], partition, pack_id, series_id):
                continue
            copy_bytes(scratch, 0, order, first * 8, (middle - first) * 8)
            i, j, k = 0, middle, first
            while i < middle - first and j < end:
                if _after(scratch[i], order[j], partition, pack_id, series_id):
                    order[k] = order[j]
                    j += 1
                else:
                    order[k] = scratch[i]
                    i += 1
                k += 1
            while i < middle - first:
                order[k] = scratch[i]
                i += 1
                k += 1
        width *= 2


@short_kernel
def order_rows_kernel(
    good: NDArray[np.bool_],
    partition: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    series_id: NDArray[np.uint64],
    order: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> int:
    """Good rows, ordered by (partition, pack_id, series_id); equal keys stay in the order of arrival. Fills `order` and
    returns the number of rows.

    Rows are first counted into buckets, of a partition and the first bits of a pack id, which is a hash. So a bucket
    has a few rows to sort: 1,000 rows in no order take half of the time of one sort, 10,000 a third.

    """
    count = last_partition = 0
    for row in range(good.size):
        if good[row]:
            scratch[count] = row
            last_partition = max(last_partition, partition[row])
            count += 1
    bits = 0
    while (last_partition + 1) << (bits + 1) <= BUCKETS_A_ROW * count:
        bits += 1
    if bits == 0:  # Each partition has few rows.
        copy_bytes(order, 0, scratch, 0, count * 8)
        _sort_rows(0, count, partition, pack_id, series_id, order, scratch)
        return count
    shift = np.uint64(64 - bits)
    bucket_end = np.zeros(((last_partition + 1) << bits) + 1, np.int64)
    for at in range(count):
        row = scratch[at]
        bucket_end[((partition[row] << bits) | np.int64(pack_id[row] >> shift)) + 1] += 1
    for bucket in range(1, bucket_end.size):
        bucket_end[bucket] += bucket_end[bucket - 1]
    for at in range(count):
        row = scratch[at]
        bucket = (partition[row] << bits) | np.int64(pack_id[row] >> shift)
        order[bucket_end[bucket]] = row
        bucket_end[bucket] += 1
    low = 0
    for bucket in range(bucket_end.size - 1):
        high = bucket_end[bucket]
        if high - low > 1:
            _sort_rows(low, high, partition, pack_id, series_id, order, scratch)
        low = high
    return count


@short_kernel
def fill_groups_kernel(
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    partition: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    series_id: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.uint64],
    out_series_id: NDArray[np.uint64],
    out_ts_ms: NDArray[np.int64],
    out_values: NDArray[np.uint64],
    out_pack_id: NDArray[np.uint64],
    out_pack_end: NDArray[np.int64],
    out_partition: NDArray[np.int64],
    out_partition_end: NDArray[np.int64],
) -> tuple[int, int]:
    """Copy samples in row order and note where packs and partitions end (in samples); returns (packs, partitions)."""
    sample = packs = partitions = 0
    for row in order:
        new_partition = partitions == 0 or out_partition[partitions - 1] != partition[row]
        if new_partition:
            out_partition[partitions] = partition[row]
            partitions += 1
        if new_partition or out_pack_id[packs - 1] != pack_id[row]:
            out_pack_id[packs] = pack_id[row]
            packs += 1
        for index in range(starts[row], starts[row + 1]):
            out_series_id[sample] = series_id[row]
            out_ts_ms[sample] = ts_ms[index]
            out_values[sample] = values[index]
            sample += 1
        out_pack_end[packs - 1] = sample
        out_partition_end[partitions - 1] = sample
    return packs, partitions


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

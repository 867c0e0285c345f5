"""Kernels that bring a request's samples into the order of the log: by partition, pack and series.

Python twins: `sorted` by (partition, pack_id, series_id), and a loop over the sorted rows (tests/unit/ingest).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes

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

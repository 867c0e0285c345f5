"""Kernels that bring a request's samples into the order of the log: by partition, pack and series.

Python twins: `sorted` by (partition, pack_id, series_id), and a loop over the sorted rows (tests/unit/ingest).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes

RUN = 8  # Rows sorted by insertion before merging starts.


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


@short_kernel
def order_rows_kernel(
    good: NDArray[np.bool_],
    partition: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    series_id: NDArray[np.uint64],
    order: NDArray[np.int64],
    scratch: NDArray[np.int64],
) -> int:
    """Good rows by (partition, pack_id, series_id), equal ones as they came; fills order, returns their count.

    Bottom-up merge sort; two runs that are in order already are not merged. A sender with a constant
    order costs one pass.
    """
    count = 0
    for row in range(good.size):
        if good[row]:
            order[count] = row
            count += 1
    for low in range(0, count, RUN):
        for i in range(low + 1, min(low + RUN, count)):
            row = order[i]
            j = i
            while j > low and _after(order[j - 1], row, partition, pack_id, series_id):
                order[j] = order[j - 1]
                j -= 1
            order[j] = row
    width = RUN
    while width < count:
        for low in range(0, count - width, 2 * width):
            middle, high = low + width, min(low + 2 * width, count)
            if not _after(order[middle - 1], order[middle], partition, pack_id, series_id):
                continue
            copy_bytes(scratch, 0, order, low * 8, (middle - low) * 8)
            i, j, k = 0, middle, low
            while i < middle - low and j < high:
                if _after(scratch[i], order[j], partition, pack_id, series_id):
                    order[k] = order[j]
                    j += 1
                else:
                    order[k] = scratch[i]
                    i += 1
                k += 1
            while i < middle - low:
                order[k] = scratch[i]
                i += 1
                k += 1
        width *= 2
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

"""Label index: the kernel that registers a batch of announcements, and the columns it fills per series."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.codec.records.record_status import STATUS_OK
from tsdb.index.label_kernels import (
    Labels,
    family_code_kernel,
    has_capacity_kernel,
    label_count_kernel,
    same_labels_kernel,
    write_run_kernel,
)
from tsdb.index.series_table_kernels import NO_REF, find_ref_kernel, insert_ref_kernel

# States of a ref. FREE: never used, or free again. LIVE: readers find it. FORGOTTEN: readers no longer find it, but may
# still use it.
STATE_FREE, STATE_LIVE, STATE_FORGOTTEN = 0, 1, 2

TALLY_NEW, TALLY_REPEATED, TALLY_CONFLICTS, TALLY_MALFORMED, TALLY_CONFLICT_AT = range(5)
TALLY_SIZE = 5


class SeriesColumns(NamedTuple):
    """Columns by ref. family: see family_code_kernel. announced_ms: broker time of the newest announcement. state:
    STATE_*."""

    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    family: NDArray[np.uint32]
    announced_ms: NDArray[np.int64]
    state: NDArray[np.uint8]


class FreeRefs(NamedTuple):
    """size int64[2]: one past the highest ref ever used; how many of `refs`, used before, are free again."""

    size: NDArray[np.int64]
    refs: NDArray[np.uint32]


REFS_SIZE, FREE_COUNT = 0, 1


@kernel
def register_kernel(
    status: NDArray[np.uint8],
    series_id: NDArray[np.uint64],
    pack_id: NDArray[np.uint64],
    label_start: NDArray[np.int64],
    label_end: NDArray[np.int64],
    broker_ms: NDArray[np.int64],
    data: NDArray[np.uint8],
    table_keys: NDArray[np.uint64],
    table_refs: NDArray[np.uint32],
    table_used: NDArray[np.int64],
    columns: SeriesColumns,
    free: FreeRefs,
    labels: Labels,
    first: int,
    tally: NDArray[np.int64],
    new_refs: NDArray[np.uint32],
) -> int:
    """Register announcements from `first` on while the label arena has capacity. Returns the first one that is left, or
    the number of all.

    Table and columns have capacity for all. tally (TALLY_SIZE,) is updated; new_refs[:tally[TALLY_NEW]]: refs of the
    new series. The labels of a known id are compared: other ones are a conflict and change nothing.

    """
    for record in range(first, status.size):
        if status[record] != STATUS_OK:
            continue
        start, end = label_start[record], label_end[record]
        ref = find_ref_kernel(table_keys, table_refs, series_id[record])
        if ref != NO_REF:
            if same_labels_kernel(labels, ref, data, start, end):
                tally[TALLY_REPEATED] += 1
                columns.announced_ms[ref] = max(columns.announced_ms[ref], broker_ms[record])
            else:
                tally[TALLY_CONFLICTS] += 1
                tally[TALLY_CONFLICT_AT] = record
            continue
        count = label_count_kernel(data, start, end)
        if count < 0:
            tally[TALLY_MALFORMED] += 1
            continue
        if not has_capacity_kernel(labels, count, end - start):
            return record
        ref = _take_ref(free)
        write_run_kernel(labels, ref, data, start, end)
        columns.series_id[ref], columns.pack_id[ref] = series_id[record], pack_id[record]
        columns.family[ref] = family_code_kernel(data, start, end)
        columns.announced_ms[ref], columns.state[ref] = broker_ms[record], STATE_LIVE
        insert_ref_kernel(table_keys, table_refs, table_used, series_id[record], ref)
        new_refs[tally[TALLY_NEW]] = ref
        tally[TALLY_NEW] += 1
    return status.size


@helper
def _take_ref(free: FreeRefs) -> Any:
    if free.size[FREE_COUNT]:
        free.size[FREE_COUNT] -= 1
        return np.int64(free.refs[free.size[FREE_COUNT]])
    free.size[REFS_SIZE] += 1
    return free.size[REFS_SIZE] - 1

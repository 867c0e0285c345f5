"""Series table: has kernels of the hash table from series_id to ref, which other kernels can call.

Open addressing with linear probing over two arrays of one power of two: a slot is free when its ref is NO_REF. A series
id is a hash already, so its low bits choose the slot; 0 is an id like any other. A removed slot keeps its key and holds
TOMBSTONE, so chains stay whole for readers of the same arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel

NO_REF = 0xFFFFFFFF  # Stands in place of a ref: marks a free slot, and answers for an unknown series.
TOMBSTONE = 0xFFFFFFFE


@helper
def find_ref_kernel(table_keys: NDArray[np.uint64], table_refs: NDArray[np.uint32], series_id: Any) -> Any:
    """Ref of a series id, or NO_REF."""
    mask, key = table_refs.size - 1, np.uint64(series_id)
    slot = np.int64(key & np.uint64(mask))
    while table_refs[slot] != NO_REF:
        if table_keys[slot] == key:
            ref = np.int64(table_refs[slot])
            return NO_REF if ref == TOMBSTONE else ref
        slot = (slot + 1) & mask
    return NO_REF


@kernel
def find_kernel(
    table_keys: NDArray[np.uint64],
    table_refs: NDArray[np.uint32],
    ids: NDArray[np.uint64],
    out_refs: NDArray[np.uint32],
) -> int:
    """out_refs (n,): the ref of each id, NO_REF for an unknown id. Returns the number of unknown ids."""
    misses = 0
    for index in range(ids.size):
        ref = find_ref_kernel(table_keys, table_refs, ids[index])
        out_refs[index] = ref
        misses += ref == NO_REF
    return misses


@helper
def insert_ref_kernel(
    table_keys: NDArray[np.uint64], table_refs: NDArray[np.uint32], used: NDArray[np.int64], series_id: Any, ref: Any
) -> None:
    """Add an id that is not in the table; there is a free slot. used[0]: slots that are not free, tombstones too."""
    mask, key = table_refs.size - 1, np.uint64(series_id)
    slot = np.int64(key & np.uint64(mask))
    while table_refs[slot] != NO_REF and table_keys[slot] != key:
        slot = (slot + 1) & mask
    if table_refs[slot] == NO_REF:
        used[0] += 1
    # The key is written first, because a reader of these arrays must not see the ref with another key.
    table_keys[slot] = key
    table_refs[slot] = ref


@kernel
def remove_kernel(table_keys: NDArray[np.uint64], table_refs: NDArray[np.uint32], ids: NDArray[np.uint64]) -> int:
    """Put tombstones where ids are found. Returns how many were."""
    mask = table_refs.size - 1
    removed = 0
    for index in range(ids.size):
        slot = np.int64(ids[index] & np.uint64(mask))
        while table_refs[slot] != NO_REF and table_keys[slot] != ids[index]:
            slot = (slot + 1) & mask
        if table_refs[slot] < TOMBSTONE:
            table_refs[slot] = TOMBSTONE
            removed += 1
    return removed


@kernel
def copy_live_kernel(
    table_keys: NDArray[np.uint64],
    table_refs: NDArray[np.uint32],
    to_keys: NDArray[np.uint64],
    to_refs: NDArray[np.uint32],
    used: NDArray[np.int64],
) -> None:
    """Add all entries but tombstones to an empty table."""
    for slot in range(table_refs.size):
        if table_refs[slot] < TOMBSTONE:
            insert_ref_kernel(to_keys, to_refs, used, table_keys[slot], table_refs[slot])

"""Resolve: series ids of decoded records to refs, a pack at a time.

Refs are cached by a pack's (id, id-vector hash). A hash alone is not trusted: the ids are compared with those of the
cached refs. A pack that is new or differs is resolved sample by sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.codec.overlay_kernels import copy_run_kernel
from tsdb.head.slices.address_kernels import signed
from tsdb.index.series_table_kernels import NO_REF, find_kernel

AT_ENTRIES, AT_REFS, AT_HITS, AT_LOOKUPS = range(4)
AT_SIZE = 4


@kernel
def resolve_kernel(
    pack_id: NDArray[np.uint64],
    id_hash: NDArray[np.uint64],
    pack_length: NDArray[np.uint32],
    series_id: NDArray[np.uint64],
    table_keys: NDArray[np.uint64],
    table_refs: NDArray[np.uint32],
    id_of_ref: NDArray[np.uint64],
    slots: NDArray[np.uint32],
    entry_pack: NDArray[np.uint64],
    entry_hash: NDArray[np.uint64],
    entry_start: NDArray[np.int64],
    arena: NDArray[np.uint32],
    at: NDArray[np.int64],
    out: NDArray[np.uint32],
) -> int:
    """out (N,): the ref of each sample, NO_REF where the id is unknown. Returns how many are.

    The cache: slots (a power of two, entry + 1 or 0), entries (pack, hash, refs at entry_start in arena), `at` says how
    full it is. A pack that does not fit is resolved by sample each time. Packs with unknown ids are not cached.
    """
    unknown, start = 0, signed(0)
    mask = np.uint64(slots.size - 1)
    for pack in range(pack_id.size):
        length = signed(pack_length[pack])
        place = (pack_id[pack] ^ (id_hash[pack] * np.uint64(0x9E3779B185EBCA87))) & mask
        entry = signed(-1)
        while slots[place]:
            candidate = signed(slots[place]) - 1
            if entry_pack[candidate] == pack_id[pack] and entry_hash[candidate] == id_hash[pack]:
                entry = candidate
                break
            place = (place + np.uint64(1)) & mask
        same_length = entry >= 0 and entry_start[entry + 1] - entry_start[entry] == length
        if same_length and _recall(arena, entry_start[entry], id_of_ref, series_id, start, length, out):
            at[AT_HITS] += 1
            start += length
            continue
        at[AT_LOOKUPS] += 1
        misses = find_kernel(table_keys, table_refs, series_id[start : start + length], out[start : start + length])
        unknown += misses
        if misses == 0:
            if entry >= 0:
                if same_length:
                    copy_run_kernel(arena, entry_start[entry], out, start, length)
            elif at[AT_REFS] + length <= arena.size and 2 * (at[AT_ENTRIES] + 1) <= slots.size:
                entry = at[AT_ENTRIES]
                entry_pack[entry], entry_hash[entry] = pack_id[pack], id_hash[pack]
                copy_run_kernel(arena, at[AT_REFS], out, start, length)
                at[AT_REFS] += length
                entry_start[entry + 1] = at[AT_REFS]
                at[AT_ENTRIES] = entry + 1
                slots[place] = entry + 1
        start += length
    return unknown


@helper
def _recall(
    arena: NDArray[np.uint32],
    arena_start: int,
    id_of_ref: NDArray[np.uint64],
    series_id: NDArray[np.uint64],
    start: int,
    length: int,
    out: NDArray[np.uint32],
) -> bool:
    for index in range(length):
        ref = arena[arena_start + index]
        if ref == NO_REF or ref >= id_of_ref.size or id_of_ref[ref] != series_id[start + index]:
            return False
        out[start + index] = ref
    return True

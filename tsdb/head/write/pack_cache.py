"""Pack cache: refs of the packs seen before, so that their samples need no look-up. Used by the writer thread only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import DecodedRecords
from tsdb.head.write.resolve_kernels import AT_ENTRIES, AT_HITS, AT_LOOKUPS, AT_REFS, AT_SIZE, resolve_kernel
from tsdb.model.arrays import total_bytes

ENTRIES_MIN, REFS_MIN = 1024, 16_384


class PackCache:
    """Grows up to refs_max refs. Full at that bound, it is emptied and fills again."""

    def __init__(self, refs_max: int) -> None:
        self._refs_max = max(refs_max, REFS_MIN)
        self._reset(ENTRIES_MIN, REFS_MIN)

    @property
    def hits(self) -> int:
        """Packs with cached refs, since the cache was last emptied."""
        return int(self._at[AT_HITS])

    @property
    def lookups(self) -> int:
        """Packs resolved sample by sample, since the cache was last emptied."""
        return int(self._at[AT_LOOKUPS])

    @property
    def bytes(self) -> int:
        arrays = (self._slots, self._entry_pack, self._entry_hash, self._entry_start, self._arena)
        return total_bytes(arrays)

    def resolve(
        self,
        records: DecodedRecords,
        table_keys: NDArray[np.uint64],
        table_refs: NDArray[np.uint32],
        id_of_ref: NDArray[np.uint64],
    ) -> tuple[NDArray[np.uint32], int]:
        """(ref of each sample, NO_REF where unknown; how many are unknown)."""
        self._free_capacity()
        refs = np.empty(len(records.series_id), np.uint32)
        unknown = resolve_kernel(
            records.pack_id,
            records.id_hash,
            records.pack_length,
            records.series_id,
            table_keys,
            table_refs,
            id_of_ref,
            self._slots,
            self._entry_pack,
            self._entry_hash,
            self._entry_start,
            self._arena,
            self._at,
            refs,
        )
        return refs, int(unknown)

    def clear(self) -> None:
        """Empty the cache, before new series reuse refs."""
        self._reset(ENTRIES_MIN, REFS_MIN)

    def _reset(self, entries: int, refs: int) -> None:
        self._slots = np.zeros(2 * entries, np.uint32)
        self._entry_pack = np.empty(entries, np.uint64)
        self._entry_hash = np.empty(entries, np.uint64)
        self._entry_start = np.zeros(entries + 1, np.int64)
        self._arena = np.empty(refs, np.uint32)
        self._at = np.zeros(AT_SIZE, np.int64)

    def _free_capacity(self) -> None:
        """Grow once half is used. This empties the cache, so each pack is resolved sample by sample once more."""
        entries, refs = len(self._entry_pack), len(self._arena)
        more_entries = 2 * int(self._at[AT_ENTRIES]) >= entries
        more_refs = 2 * int(self._at[AT_REFS]) >= refs
        if not more_entries and not more_refs:
            return
        if refs >= self._refs_max or entries >= self._refs_max:
            entries, refs = ENTRIES_MIN // 4, REFS_MIN // 4
        self._reset(entries * (4 if more_entries else 1), refs * (4 if more_refs else 1))

"""Resolved rows: ids, partition and announcement state of each row of one request, gathered from the series cache.

A copy, so it stays correct when the cache evicts these series meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest

NO_SLOT = -1
EPOCH, KNOWN_UNTIL, RENEW_AT = 0, 1, 2  # Columns of ResolvedRows.known.


@dataclass(slots=True)
class ResolvedRows:
    """One request's n rows.

    slot, partition: int64 (n,); series_id, pack_id: uint64 (n,); source: uint32 (n,), source_hash of the placement.
    known: int64 (n, 2, 3), for each parity of index epoch: the EPOCH last announced, KNOWN_UNTIL and RENEW_AT by the
    age clock. errors: rows with refused labels; their slot is NO_SLOT and their other fields have no meaning.
    """

    slot: NDArray[np.int64]
    series_id: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    partition: NDArray[np.int64]
    source: NDArray[np.uint32]
    known: NDArray[np.int64]
    errors: dict[int, InvalidRequest]


def empty_rows(count: int) -> ResolvedRows:
    """Rows without a slot, to be filled by `put`."""
    return ResolvedRows(
        np.full(count, NO_SLOT, np.int64),
        np.zeros(count, np.uint64),
        np.zeros(count, np.uint64),
        np.zeros(count, np.int64),
        np.zeros(count, np.uint32),
        np.zeros((count, 2, 3), np.int64),
        {},
    )


def put(rows: ResolvedRows, where: NDArray[np.int64], found: ResolvedRows) -> None:
    """Write the i-th of `found` to rows[where[i]]."""
    rows.slot[where] = found.slot
    rows.series_id[where] = found.series_id
    rows.pack_id[where] = found.pack_id
    rows.partition[where] = found.partition
    rows.source[where] = found.source
    rows.known[where] = found.known

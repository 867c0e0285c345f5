"""Resolved series: ids, partition and announcement state of each row of one request.

A copy of the series table's rows, so it stays correct when they are replaced meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest


@dataclass(slots=True)
class ResolvedSeries:
    """One request's n rows.

    series_id, check, pack_id: uint64 (n,); check: check_hash of the labels; partition: int64 (n,).
    known: int64 (n, 2, 3), for each parity of index epoch: the epoch last announced, known until and renewal time, both
    by the age clock. errors: rows with refused labels; their other fields have no meaning.
    """

    series_id: NDArray[np.uint64]
    check: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    partition: NDArray[np.int64]
    known: NDArray[np.int64]
    errors: dict[int, InvalidRequest] = field(default_factory=dict)

    def part(self, which: NDArray[np.int64] | NDArray[np.bool_]) -> ResolvedSeries:
        """A copy of some rows, without their errors."""
        return ResolvedSeries(
            self.series_id[which], self.check[which], self.pack_id[which], self.partition[which], self.known[which]
        )


def unresolved(series_id: NDArray[np.uint64], check: NDArray[np.uint64]) -> ResolvedSeries:
    """Rows with these hashes, to be filled."""
    count = len(series_id)
    return ResolvedSeries(
        series_id, check, np.zeros(count, np.uint64), np.zeros(count, np.int64), np.zeros((count, 2, 3), np.int64)
    )

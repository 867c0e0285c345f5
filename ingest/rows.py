"""Rows: represent the series and samples of one request of any protocol as arrays.

A protocol decodes its bytes into rows; the write pipeline takes them. No Python object exists for a row or a sample.

ResolvedSeries has the ids, the partition and the announcement state of each row of one request. It copies them from the
series table, so it stays correct when the table replaces them meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class RowExemplars:
    """e exemplars of rows. row: int64 (e,); ts_ms: int64 (e,); values: float64 (e,). labels: uint8, the label sets
    joined, each canonical; exemplar i has labels[label_starts[i]:label_starts[i + 1]]; label_starts: int64 (e + 1,)."""

    row: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    labels: NDArray[np.uint8]
    label_starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.row)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return 32 * len(self.row) + self.labels.nbytes


@dataclass(frozen=True, slots=True)
class Rows:
    """n rows; row r has the samples [starts[r], starts[r + 1]).

    labels: uint8, the label sets of all rows joined, each `name 0xFF value 0xFF name 0xFF value ...` in any order of
    names; row r has labels[label_starts[r]:label_starts[r + 1]]. label_starts, starts: int64 (n + 1,).
    ts_ms: int64, ms since the epoch; values: float64 (samples,).
    errors: rows that the protocol itself refuses. Their labels are empty or have no meaning. exemplars: None without
    any. details: those of the samples, None where no sample has any.
    """

    labels: NDArray[np.uint8]
    label_starts: NDArray[np.int64]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    errors: Mapping[int, InvalidRequest] = field(default_factory=dict)
    exemplars: RowExemplars | None = None
    details: SampleDetails | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def samples(self) -> int:
        """Number of samples of all rows."""
        return len(self.ts_ms)

    @property
    def nbytes(self) -> int:
        """Bytes of labels, samples, exemplars and details."""
        more = sum(part.nbytes for part in (self.exemplars, self.details) if part is not None)
        return self.labels.nbytes + self.ts_ms.nbytes + self.values.nbytes + more

    def samples_of(self, row: int) -> int:
        """Samples of one row."""
        return int(self.starts[row + 1] - self.starts[row])

    def labels_of(self, row: int) -> bytes:
        """Labels of one row, as the sender wrote them."""
        return self.labels[self.label_starts[row] : self.label_starts[row + 1]].tobytes()


def make_rows(
    labels: Sequence[bytes], counts: NDArray[np.uint32] | None, ts_ms: NDArray[np.int64], values: NDArray[np.float64]
) -> Rows:
    """Rows in the order of `labels`; series labels[i] has counts[i] samples, or one each when `counts` is None."""
    label_starts, starts = np.zeros(len(labels) + 1, np.int64), np.arange(len(labels) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, labels), np.int64, len(labels)), out=label_starts[1:])
    if counts is not None:
        np.cumsum(counts, dtype=np.int64, out=starts[1:])
    joined = np.frombuffer(b"".join(labels), np.uint8)
    # The kernels are compiled for contiguous arrays.
    return Rows(joined, label_starts, starts, np.ascontiguousarray(ts_ms), np.ascontiguousarray(values))


NO_ROWS = Rows(
    np.empty(0, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float64)
)


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

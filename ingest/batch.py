"""Batch: rows and samples of one request of any protocol, with their shape checked against the limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.limits import IngestLimits
from tsdb.model.errors import InvalidRequest

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Batch:
    """Row r has labels[r] and samples [starts[r], starts[r + 1]); every row has at least one sample.

    labels: bytes as the sender wrote them; starts: int64 (rows + 1,); ts_ms: int64, values: float64 (samples,).
    size: bytes of labels and samples.
    """

    labels: Sequence[bytes]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    size: int

    @property
    def samples(self) -> int:
        return len(self.ts_ms)

    def samples_of(self, row: int) -> int:
        return int(self.starts[row + 1] - self.starts[row])


def make_batch(
    labels: Sequence[bytes],
    counts: NDArray[np.uint32] | None,
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    limits: IngestLimits,
) -> Batch:
    """Check shapes and sizes; `counts` None means one sample a row.

    Raises InvalidRequest: empty_request, malformed_request, too_many_series, too_many_samples, request_too_large.
    """
    rows = len(labels)
    if not rows:
        raise InvalidRequest("the request has no series", reason="empty_request")
    _check_limit("series", rows, limits.series_max, "too_many_series")
    _check_limit("samples", len(ts_ms), limits.samples_max, "too_many_samples")
    size = sum(map(len, labels)) + ts_ms.nbytes + values.nbytes
    _check_limit("bytes", size, limits.request_bytes_max, "request_too_large")
    starts = _starts(rows, counts)
    if not starts[-1] == len(ts_ms) == len(values):
        raise InvalidRequest(
            f"{rows} series claim {starts[-1]} samples, but there are {len(ts_ms)} timestamps and {len(values)} values",
            reason="malformed_request",
        )
    return Batch(labels, starts, _readonly(ts_ms), _readonly(values), size)


def _starts(rows: int, counts: NDArray[np.uint32] | None) -> NDArray[np.int64]:
    if counts is None:
        return np.arange(rows + 1, dtype=np.int64)
    if len(counts) != rows:
        raise InvalidRequest(f"{len(counts)} sample counts for {rows} series", reason="malformed_request")
    if not counts.all():
        row = int(np.flatnonzero(counts == 0)[0])
        raise InvalidRequest(f"series_index {row} has no samples: leave it out", reason="malformed_request")
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, dtype=np.int64, out=starts[1:])
    return starts


def _check_limit(what: str, got: int, limit: int, reason: str) -> None:
    if got > limit:
        raise InvalidRequest(
            f"the request has {got} {what}; limit is {limit}: split it", reason=reason, got=got, limit=limit
        )


def _readonly(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A contiguous read-only view: the kernels are compiled for one kind of array, whatever the protocol delivers."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view

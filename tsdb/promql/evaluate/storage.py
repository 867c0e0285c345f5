"""Storage: the interface from which an evaluation reads its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails
from tsdb.model.selector import Matcher


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """Series of a selector with their samples, ascending in time, stale markers included. Each series comes once.

    labels: canonical. The samples of series i are [starts[i], starts[i + 1]). starts: int64 (series + 1,). ts_ms:
    int64. values: float64. warnings: name missing samples, when the request allows them. details: start timestamps and
    histograms of the samples, None where none has any. The value of a histogram is its sum, which is the stale NaN at
    the end of a series.
    """

    labels: Sequence[bytes]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    warnings: Sequence[str] = ()
    details: SampleDetails | None = None

    def within(self, start_ms: int, end_ms: int) -> StoredSeries:
        """The samples in [start_ms, end_ms], and the series that have some there."""
        keeps = (self.ts_ms >= start_ms) & (self.ts_ms <= end_ms)
        if keeps.all():
            return self
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(keeps)))[self.starts]
        some = np.flatnonzero(np.diff(before))
        return StoredSeries(
            self.labels if len(some) == len(self.labels) else [self.labels[row] for row in some.tolist()],
            before[np.append(some, len(before) - 1)],
            self.ts_ms[keeps],
            self.values[keeps],
            self.warnings,
            self.details and self.details.take(np.flatnonzero(keeps)),
        )


class Storage(Protocol):
    """Used by one query, on one thread."""

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """The samples in [start_ms, end_ms] of the series that match. The answer is never silently incomplete: it
        raises TsdbError instead."""

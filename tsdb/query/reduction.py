"""Reduction: reduces the samples of each series to steps or to the newest ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.head.read.gather import Runs, compact
from tsdb.head.read.step_kernels import aggregate_kernel
from tsdb.model.arrays import joined_ranges
from tsdb.model.errors import InvalidRequest

NO_PACK = 0  # Pack of a fragment that has series of several packs.


@dataclass(frozen=True, slots=True)
class Reduction:
    """Reduces the samples of each series: to all of them (no step, last_n 0), to one per step from start_ms on, or to
    the newest last_n."""

    start_ms: int
    step_ms: int = 0
    aggregation: int = 0
    last_n: int = 0

    def apply(self, fragment: Fragment) -> Fragment:
        """The remaining samples. The orders of aggregates have no meaning, and aggregates have no start timestamps.

        Raises InvalidRequest (native_histograms): an aggregate of floats says nothing about a histogram.
        """
        if not self.step_ms and not self.last_n:
            return fragment
        details = fragment.details
        if self.step_ms:
            refuse_histograms(fragment)
        starts, ends = fragment.sample_start[:-1].copy(), fragment.sample_start[1:].copy()
        # The aggregation works in place, and the arrays of a fragment may be shared.
        runs = Runs(starts, ends, fragment.ts_ms.copy(), fragment.value.copy(), np.empty(0, np.int64))
        if self.step_ms:
            aggregate_kernel(
                runs.starts, runs.ends, runs.ts_ms, runs.values, self.start_ms, self.step_ms, self.aggregation
            )
        raw = compact(runs, last_n=self.last_n)
        counts = raw.counts.astype(np.int64)
        orders = np.zeros(raw.samples, np.int64)
        reduced = packless_fragment(fragment.series_id, counts, raw.ts_ms, raw.values, orders)
        if details is None or self.step_ms:
            return reduced
        newest = joined_ranges(fragment.sample_start[1:] - counts, counts)
        return replace(reduced, details=details.take(newest))


def refuse_histograms(fragment: Fragment) -> None:
    """Raise InvalidRequest (native_histograms) where a sample is a histogram: steps are of floats."""
    if fragment.details is not None and fragment.details.histograms is not None:
        raise InvalidRequest(
            "the series have native histograms, which have no values of steps: leave step_ms and aggregation out,"
            " or send a query",
            reason="native_histograms",
        )


def packless_fragment(
    series_ids: NDArray[np.uint64],
    counts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    orders: NDArray[np.int64],
) -> Fragment:
    """Build a fragment of series of any packs. Series without samples are left out."""
    filled = np.flatnonzero(counts)
    starts = np.zeros(len(filled) + 1, np.int64)
    np.cumsum(counts[filled], out=starts[1:])
    return Fragment(NO_PACK, 0, series_ids[filled], starts, ts_ms, values, orders)

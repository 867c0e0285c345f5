"""Shows the native histograms of a result as JSON, and computes the columns of their table.

A series may have both numbers and histograms, so histograms have separate lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsdb.client import QueryResult, SelectResult

if TYPE_CHECKING:
    from tsdb.promql.evaluate.native.histograms import NativeHistograms

QUANTILES = (0.5, 0.9, 0.99)
QUANTILE_NAMES = tuple(f"p{100 * quantile:g}" for quantile in QUANTILES)


class ResultHistograms:
    """The histograms of a result, which must have some."""

    def __init__(self, result: SelectResult | QueryResult) -> None:
        # Imported here: a result of numbers needs neither PromQL nor its kernels.
        from tsdb.promql.evaluate.native.histograms import from_columns

        details = result.details
        assert details is not None, "the caller has checked"
        assert details.histograms is not None, "the caller has checked"
        assert details.histogram_of is not None, "the caller has checked"
        self._histograms: NativeHistograms = from_columns(details.histograms)
        self._of = details.histogram_of
        self._result = result

    @property
    def counts(self) -> NDArray[np.float64]:
        """Observations of each histogram."""
        return self._histograms.counts

    @property
    def sums(self) -> NDArray[np.float64]:
        """Sum of the observations of each histogram."""
        return self._histograms.sums

    def quantiles(self, of: Sequence[int]) -> list[list[float]]:
        """The QUANTILES of each of these histograms."""
        chosen = self._histograms.take(np.array(of, np.int64))
        columns = [chosen.quantiles(np.full(len(of), quantile))[0] for quantile in QUANTILES]
        return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def points(self, start: int, end: int) -> bytes:
        """The histograms among the samples [start, end), as the HTTP API has them: `[[time, {...}], ...]`."""
        from tsdb.api.prometheus.json.rows import histogram_points

        where = self._of[start:end] >= 0
        pieces = histogram_points(self._histograms, self._of[start:end][where], self._result.ts_ms[start:end][where])
        return b"[" + b"".join(pieces)[1:] + b"]"


def has_histograms(result: SelectResult | QueryResult) -> bool:
    """Whether a sample of the result is a native histogram."""
    return result.details is not None and result.details.histograms is not None


def is_float(result: SelectResult | QueryResult) -> NDArray[np.bool_]:
    """Whether each sample of the result is a number, bool (samples,)."""
    if result.details is None or result.details.histogram_of is None:
        return np.ones(len(result.values), np.bool_)
    found: NDArray[np.bool_] = result.details.histogram_of < 0
    return found

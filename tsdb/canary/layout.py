"""Layout: defines the canary's series and the values of their samples. Pure.

A sample proves itself. Its value is an integer: `run * 2^32 + hash(series, time, run)`, where `run` is the number of
writes in direct succession before this one that the gateway acknowledged. A reader needs no memory of what was
written: a value whose hash does not fit is wrong, and a right one names samples before it that must be there too. Sums
of up to 64 values are below 2^53, so they are exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tsdb.model.arrays import splitmix64
from tsdb.model.labels import canonical_labels

METRIC = "tsdb_canary_sample"
JOB = "tsdb-canary"
RUN_MAX = 4095  # 12 bits: more than the samples of one series in a check.
_HASH_BITS = 32
_HASH_MASK = np.uint64((1 << _HASH_BITS) - 1)
_VALUE_MAX = float((RUN_MAX + 1) << _HASH_BITS)

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """The series of one canary. Another `period_ms` or `series` gives other labels, so new series."""

    name: str
    period_ms: int
    series: int

    @cached_property
    def labels(self) -> tuple[bytes, ...]:
        """Canonical labels of each series. Each series is a separate source, so that they spread over the
        partitions."""
        shared = {"__name__": METRIC, "job": JOB, **self._common}
        return tuple(canonical_labels({**shared, "instance": f"{self.name}-{row}"}) for row in range(self.series))

    @cached_property
    def rows(self) -> dict[bytes, int]:
        """Index of the series by canonical labels."""
        return {canonical: row for row, canonical in enumerate(self.labels)}

    @property
    def selector(self) -> str:
        """A selector of exactly these series."""
        matchers = ",".join(f'{name}="{value}"' for name, value in {"job": JOB, **self._common}.items())
        return f"{METRIC}{{{matchers}}}"

    def tick_ms(self, at_ms: int) -> int:
        """The last sample time at or before at_ms."""
        return at_ms - at_ms % self.period_ms

    def ticks(self, start_ms: int, end_ms: int) -> Int64s:
        """All sample times in [start_ms, end_ms)."""
        return np.arange(-(-start_ms // self.period_ms), -(-end_ms // self.period_ms), dtype=np.int64) * self.period_ms

    @property
    def _common(self) -> dict[str, str]:
        return {"canary": self.name, "period_ms": str(self.period_ms), "series": str(self.series)}


def values_of(rows: Int64s, ts_ms: Int64s, runs: Int64s) -> NDArray[np.float64]:
    """The values of samples. All arrays are int64 (n,). runs: number of acknowledged writes directly before, at most
    RUN_MAX."""
    shifted = runs.astype(np.uint64) << np.uint64(_HASH_BITS)
    return (shifted | (_hash(rows, ts_ms, runs) & _HASH_MASK)).astype(np.float64)


def runs_of(rows: Int64s, ts_ms: Int64s, values: NDArray[np.float64]) -> Int64s:
    """The run of each sample, int64 (n,); -1 for a value that is wrong for its series and time."""
    legal = np.isfinite(values) & (values >= 0) & (values < _VALUE_MAX) & (values == np.floor(values))
    runs = np.where(legal, values, 0).astype(np.int64) >> _HASH_BITS
    # Compare bits, because -0.0 equals 0.0 as a number.
    right = values_of(rows, ts_ms, runs).view(np.int64) == values.view(np.int64)
    return np.where(legal & right, runs, -1)


def _hash(rows: Int64s, ts_ms: Int64s, runs: Int64s) -> NDArray[np.uint64]:
    mixed = splitmix64(ts_ms.astype(np.uint64))
    mixed = splitmix64(mixed ^ rows.astype(np.uint64))
    return splitmix64(mixed ^ runs.astype(np.uint64))

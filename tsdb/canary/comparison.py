"""Compares the samples that a read returned with those that it must return. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.canary.layout import Layout, runs_of

Returned = Iterable[tuple[bytes, NDArray[np.int64], NDArray[np.float64]]]
"""(canonical labels, ts_ms, values) of each series in an answer."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Counts of the samples of one read.

    mismatch: the value is wrong. missing: acknowledged and not returned. unexpected: the series is not the canary's,
    the time is not in the range, or the sample was returned before. oldest_ms: time of the oldest exact sample; None
    without one.

    """

    exact: int = 0
    mismatch: int = 0
    missing: int = 0
    unexpected: int = 0
    oldest_ms: int | None = None

    @property
    def clean(self) -> bool:
        """No sample is wrong, missing or unexpected."""
        return not (self.mismatch or self.missing or self.unexpected)

    @property
    def empty(self) -> bool:
        """Whether nothing was returned, and nothing had to be returned."""
        return self.clean and not self.exact


@dataclass(frozen=True, slots=True)
class Comparison:
    """values: float64 (series, ticks) of the exact samples, NaN elsewhere. required: bool (ticks,)."""

    findings: Findings
    values: NDArray[np.float64]
    required: NDArray[np.bool_]


def compare(
    layout: Layout,
    returned: Returned,
    ticks: NDArray[np.int64],
    acknowledged: NDArray[np.bool_],
    checked_end_ms: int | None = None,
) -> Comparison:
    """Compare an answer for the range of `ticks`, all sample times of it, ascending. acknowledged: bool (ticks,).

    checked_end_ms: findings are of sample times before it. Later samples only name those that must be there.
    """
    rows, ts_ms, values = _flat(layout, returned)
    checked = len(ticks) if checked_end_ms is None else int(np.searchsorted(ticks, checked_end_ms))
    of_range = ts_ms < checked_end_ms if checked_end_ms is not None else np.ones(len(ts_ms), np.bool_)
    columns = np.searchsorted(ticks, ts_ms)
    # A column past the end has no time that it can be compared with.
    known = (rows >= 0) & (columns < len(ticks)) & (np.append(ticks, -1)[columns] == ts_ms)
    cells = rows * len(ticks) + columns
    _, first = np.unique(cells[known], return_index=True)
    kept = np.flatnonzero(known)[first]
    runs = runs_of(rows[kept], ts_ms[kept], values[kept])
    right = kept[runs >= 0]
    came, exact = np.zeros((layout.series, len(ticks)), np.bool_), np.full((layout.series, len(ticks)), np.nan)
    came.ravel()[cells[kept]] = True
    exact.ravel()[cells[right]] = values[right]
    required = acknowledged | _named(columns[right], runs[runs >= 0], len(ticks))
    right, kept = right[of_range[right]], kept[of_range[kept]]
    findings = Findings(
        exact=len(right),
        mismatch=len(kept) - len(right),
        missing=int((required & ~came)[:, :checked].sum()),
        unexpected=int(of_range.sum()) - len(kept),
        oldest_ms=int(ts_ms[right].min()) if len(right) else None,
    )
    return Comparison(findings, exact, required)


def _named(columns: NDArray[np.int64], runs: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Ticks that samples name as acknowledged: the `runs` ticks before each."""
    steps = np.zeros(count + 1, np.int64)
    np.add.at(steps, np.maximum(columns - runs, 0), 1)
    np.add.at(steps, columns, -1)
    return np.cumsum(steps)[:count] > 0


def _flat(layout: Layout, returned: Returned) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """(row, ts_ms, value) of each sample; row -1 for a series that is not the canary's."""
    rows, times, values = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
    for canonical, ts_ms, found in returned:
        rows.append(np.full(len(ts_ms), layout.rows.get(canonical, -1), np.int64))
        times.append(ts_ms)
        values.append(found)
    return np.concatenate(rows), np.concatenate(times), np.concatenate(values)

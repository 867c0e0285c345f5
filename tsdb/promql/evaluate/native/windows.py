"""SampleWindows of samples, for all series and steps at once, and histograms between two samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.native.histograms import CombinedHistograms, NativeHistograms

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SampleWindows:
    """The samples [low, high) of each series at each step, int64 (series, steps)."""

    low: Integers
    high: Integers

    @property
    def sizes(self) -> Integers:
        """Number of samples of each window."""
        return self.high - self.low


def windows_of(starts: Integers, ts_ms: Integers, low_ms: Integers, high_ms: Integers) -> SampleWindows:
    """The windows of samples in (low, high] of each step. Series i has the samples [starts[i], starts[i + 1])."""
    return SampleWindows(places_of(starts, ts_ms, low_ms), places_of(starts, ts_ms, high_ms))


def places_of(starts: Integers, ts_ms: Integers, times_ms: Integers) -> Integers:
    """The place of the first sample after each time, int64 (series, times)."""
    rows = np.arange(len(starts) - 1)
    if not len(ts_ms):
        return np.zeros((len(rows), len(times_ms)), np.int64)
    base = int(ts_ms.min())
    width = int(ts_ms.max()) - base + 2  # The samples of a series lie between those of its neighbours.
    ordered = np.repeat(rows, np.diff(starts)) * width + (ts_ms - base)
    wanted = np.clip(times_ms - base, -1, width - 2)
    return np.searchsorted(ordered, rows[:, np.newaxis] * width + wanted, side="right")


def interpolated(
    histograms: NativeHistograms,
    pairs: tuple[Integers, Integers],
    spans_ms: tuple[Integers, Integers],
    times_ms: Integers,
    is_counter: NDArray[np.bool_],
) -> CombinedHistograms:
    """The histogram at each time between two of them, or the one itself where both are the same. A counter that was
    reset between them rises from nothing."""
    before, after = pairs
    length = spans_ms[1] - spans_ms[0]
    is_one = length == 0
    share = np.where(is_one, 1.0, (times_ms - spans_ms[0]) / np.where(is_one, 1, length))
    alone = is_one | (is_counter & histograms.are_resets(after, before))
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.where(alone, 1, 2))))
    members, weights = np.zeros(starts[-1], np.int64), np.ones(starts[-1])
    members[starts[:-1]], weights[starts[:-1]] = after, share
    second = starts[1:][~alone] - 1
    members[second], weights[second] = before[~alone], 1.0 - share[~alone]
    return histograms.combined(starts, members, weights)

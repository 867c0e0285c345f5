"""Kernels that find the samples of each step: the newest one for a vector, a window of them for a range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel

STALE_BITS = 0x7FF0000000000002  # Prometheus's stale marker, a NaN of these bits.


@kernel
def newest_kernel(
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    bits: NDArray[np.int64],
    at_ms: NDArray[np.int64],
    lookback_ms: int,
    newest: NDArray[np.int64],
    values: NDArray[np.float64],
) -> None:
    """newest (series, steps): index of the last sample in (at - lookback, at], or -1 if there is none or it is stale.

    values (series, steps): of these samples. at_ms ascends.
    """
    value_bits = values.view(np.int64)
    for series in range(starts.size - 1):
        end = starts[series + 1]
        position = starts[series]  # The first sample after the step.
        for step in range(at_ms.size):
            while position < end and ts_ms[position] <= at_ms[step]:
                position += 1
            last = position - 1
            newest[series, step] = -1
            value_bits[series, step] = 0
            if last >= starts[series] and ts_ms[last] > at_ms[step] - lookback_ms and bits[last] != STALE_BITS:
                newest[series, step] = last
                value_bits[series, step] = bits[last]


@kernel
def windows_kernel(
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    at_ms: NDArray[np.int64],
    before_ms: int,
    after_ms: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """[first, last) (series, steps): the samples in (at - before, at + after]. at_ms ascends."""
    for series in range(starts.size - 1):
        end = starts[series + 1]
        low = high = starts[series]
        for step in range(at_ms.size):
            while high < end and ts_ms[high] <= at_ms[step] + after_ms:
                high += 1
            while low < high and ts_ms[low] <= at_ms[step] - before_ms:
                low += 1
            first[series, step], last[series, step] = low, high


@kernel
def smoothed_kernel(
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    samples: NDArray[np.float64],
    at_ms: NDArray[np.int64],
    lookback_ms: int,
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
) -> None:
    """values, present (series, steps): between the samples around each step, or the one before it. at_ms ascends."""
    for series in range(starts.size - 1):
        end = starts[series + 1]
        position = starts[series]  # The first sample at or after the step.
        for step in range(at_ms.size):
            at = at_ms[step]
            while position < end and ts_ms[position] < at:
                position += 1
            present[series, step] = True
            has_next = position < end and ts_ms[position] <= at + lookback_ms
            before = position - 1
            has_before = before >= starts[series] and ts_ms[before] > at - lookback_ms
            if has_next and ts_ms[position] == at:
                values[series, step] = samples[position]
            elif has_before and has_next:
                share = (at - ts_ms[before]) / (ts_ms[position] - ts_ms[before])
                values[series, step] = samples[before] + (samples[position] - samples[before]) * share
            elif has_before:
                values[series, step] = samples[before]
            else:
                present[series, step] = False
                values[series, step] = 0.0

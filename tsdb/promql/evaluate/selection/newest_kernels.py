"""These kernels evaluate instant selectors: they find the sample of each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, kernel
from tsdb.model.stale import STALE_BITS


@kernel
def newest_kernel(
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    bits: NDArray[np.int64],
    column: NDArray[np.int64],
    at_ms: NDArray[np.int64],
    lookback_ms: int,
    value_bits: Array2[np.int64],
    taken: Array2[np.int64],
    present: Array2[np.bool_],
) -> None:
    """Write the last sample in (at - lookback, at] of each step, unless it is stale.

    bits: the samples' values as bits; value_bits (series, steps) gets some of them. present: (series, steps). column:
    another column of the samples, from which taken (series, steps) gets some; `taken` is empty when none is requested.
    at_ms ascends.
    """
    takes = taken.size > 0
    for series in range(starts.size - 1):
        end = starts[series + 1]
        position = starts[series]  # Now this is the first sample after the step.
        for step in range(at_ms.size):
            while position < end and ts_ms[position] <= at_ms[step]:
                position += 1
            last = position - 1
            found = last >= starts[series] and ts_ms[last] > at_ms[step] - lookback_ms and bits[last] != STALE_BITS
            present[series, step] = found
            value_bits[series, step] = bits[last] if found else 0
            if takes:
                taken[series, step] = column[last] if found else 0


@kernel
def smoothed_kernel(
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    samples: NDArray[np.float64],
    at_ms: NDArray[np.int64],
    lookback_ms: int,
    values: Array2[np.float64],
    present: Array2[np.bool_],
) -> None:
    """Fill values and present (series, steps): interpolate between the samples around each step, or use the one before
    it. at_ms ascends."""
    for series in range(starts.size - 1):
        end = starts[series + 1]
        position = starts[series]  # Now this is the first sample at or after the step.
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
                rise = samples[position] - samples[before]
                share = rise * float(at - ts_ms[before]) / float(ts_ms[position] - ts_ms[before])
                values[series, step] = samples[before] + share
            elif has_before:
                values[series, step] = samples[before]
            else:
                present[series, step] = False
                values[series, step] = 0.0

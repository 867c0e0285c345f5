"""This kernel computes the increase of a counter in each bucket, resets included.

The other aggregates are those of the querier's steps (tsdb.head.read.step_kernels), so that both say the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel


@kernel
def increases_kernel(
    starts: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    before: NDArray[np.float64],
    resolution_ms: int,
    out: NDArray[np.float64],
) -> int:
    """Increase of each series in each bucket that has a sample, series by series. Returns the number of buckets.

    before: the last value of each series before its first sample here; NaN without such a value. A decrease is a reset:
    the counter began again at 0. NaN values are skipped.

    """
    bucket = 0
    for series in range(starts.size - 1):
        last = before[series]
        at, end = starts[series], starts[series + 1]
        while at < end:
            stop = ts[at] // resolution_ms * resolution_ms + resolution_ms
            grown = 0.0
            while at < end and ts[at] < stop:
                value = values[at]
                if not np.isnan(value):
                    if not np.isnan(last):
                        grown += value - last if value >= last else value
                    last = value
                at += 1
            out[bucket] = grown
            bucket += 1
        before[series] = last
    return bucket

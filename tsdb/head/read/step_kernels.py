"""Steps: aggregates each series over steps [start + k step, start + (k + 1) step), in time order.

Empty steps are left out. A NaN takes part as IEEE 754 says in sums and averages, and is counted; minimum and maximum
pass over NaN unless a step has nothing else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel

LAST, AVG, MIN, MAX, SUM, COUNT = 1, 2, 3, 4, 5, 6  # Numbers of Aggregation on the wire.


@kernel
def aggregate_kernel(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    values: NDArray[np.float64],
    start_ms: int,
    step_ms: int,
    aggregation: int,
) -> None:
    """Replace each run by its steps, in place. A step has the timestamp of its start. Lowers `ends`."""
    for which in range(ends.size):
        at, end, to = starts[which], ends[which], starts[which]
        while at < end:
            step = start_ms + (ts[at] - start_ms) // step_ms * step_ms
            first = at
            at += 1
            while at < end and ts[at] < step + step_ms:
                at += 1
            value = _aggregate(values, first, at, aggregation)
            ts[to], values[to] = step, value
            to += 1
        ends[which] = to


@helper
def _aggregate(values: NDArray[np.float64], start: int, end: int, aggregation: int) -> float:
    if aggregation == COUNT:
        return float(end - start)
    if aggregation == LAST:
        return float(values[end - 1])
    result = float(values[start])
    for index in range(start + 1, end):
        value = values[index]
        if aggregation == MIN:
            if value < result or np.isnan(result):
                result = value
        elif aggregation == MAX:
            if value > result or np.isnan(result):
                result = value
        else:
            result += value
    return result / (end - start) if aggregation == AVG else result

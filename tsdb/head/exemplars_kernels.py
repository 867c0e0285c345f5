"""Kernel that chooses which exemplars of a head stay. Twin: a loop over lists (tests/unit/tsdb/head)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel

DUPLICATE, OUT_OF_ORDER, REPLACED, COUNTS = range(4)


@kernel
def chosen_kernel(
    order: NDArray[np.int64],
    series_id: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    series_max: int,
    counts: NDArray[np.int64],
    chosen: NDArray[np.int64],
) -> int:
    """Indices of the exemplars that stay, in `order`, which has all exemplars by series and then by arrival.

    An exemplar that equals the newest one of its series, or is older than that, goes, as in Prometheus; of the others
    the last series_max of each series stay. counts: the number of those that go, by reason. Fills `chosen` and returns
    how many stay.
    """
    end = 0
    first = 0  # Where the series begins in `chosen`.
    for position in range(order.size):
        index = order[position]
        if position == 0 or series_id[order[position - 1]] != series_id[index]:
            first = end
        if end > first:
            newest = chosen[end - 1]
            if _is_older(ts_ms[index], values[index], ts_ms[newest], values[newest]):
                counts[OUT_OF_ORDER] += 1
                continue
            if (
                ts_ms[index] == ts_ms[newest]
                and values[index] == values[newest]
                and _same_labels(labels, label_starts, index, newest)
            ):
                counts[DUPLICATE] += 1
                continue
        if end - first == series_max:
            counts[REPLACED] += 1
            for at in range(first, end - 1):
                chosen[at] = chosen[at + 1]
            end -= 1
        chosen[end] = index
        end += 1
    return end


@helper
def _is_older(ts_ms: int, value: float, newest_ms: int, newest_value: float) -> bool:
    """Whether an exemplar comes before the newest one. A value that is NaN has no order."""
    return bool(ts_ms < newest_ms or (ts_ms == newest_ms and value < newest_value))


@helper
def _same_labels(labels: NDArray[np.uint8], label_starts: NDArray[np.int64], one: int, other: int) -> bool:
    size = label_starts[one + 1] - label_starts[one]
    if size != label_starts[other + 1] - label_starts[other]:
        return False
    different = 0
    for at in range(size):
        different += labels[label_starts[one] + at] != labels[label_starts[other] + at]
    return different == 0

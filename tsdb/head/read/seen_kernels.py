"""Find the first and last sample time of each series, from time axes alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.codec.overlay_kernels import first_not_below
from tsdb.head.read.gather_kernels import decode_axis, slot_of
from tsdb.head.slices.address_kernels import signed, u32_at
from tsdb.head.slices.rows import (
    SEALED_AXES,
    SEALED_AXIS_COUNT,
    SEALED_AXIS_OF,
    SEALED_END,
    SEALED_SLOTS,
    SEALED_START,
    Rows,
)


@kernel
def seen_in_slices_kernel(
    rows: Rows,
    refs: NDArray[np.uint32],
    start_ms: int,
    end_ms: int,
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> int:
    """Widen first and last (per ref) by the samples of sealed slices in [start_ms, end_ms). Negative: a bug."""
    for row in range(len(rows)):
        if rows[row, SEALED_START] >= end_ms or rows[row, SEALED_END] <= start_ms:
            continue
        axes = rows[row, SEALED_AXES]
        axis_of = u32_at(rows[row, SEALED_AXIS_OF], rows[row, SEALED_SLOTS])
        counts = u32_at(rows[row, SEALED_AXIS_COUNT], axes)
        # Each axis is decoded once: state 0 new, 1 has samples in the range, 2 has none.
        state, low, high = np.zeros(axes, np.uint8), np.empty(axes, np.int64), np.empty(axes, np.int64)
        times = np.empty(_largest(counts), np.int64)
        for which in range(refs.size):
            slot = slot_of(rows, row, refs[which])
            if slot < 0:
                continue
            axis = signed(axis_of[slot])
            if state[axis] == 0:
                count = decode_axis(rows, row, axis, times, 0)
                if count < 0:
                    return count
                begin = first_not_below(times, 0, count, start_ms)
                end = first_not_below(times, begin, count, end_ms)
                state[axis] = 1 if begin < end else 2
                if begin < end:
                    low[axis], high[axis] = times[begin], times[end - 1]
            if state[axis] == 1:
                first[which], last[which] = min(first[which], low[axis]), max(last[which], high[axis])
    return 0


@kernel
def seen_in_runs_kernel(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    ts: NDArray[np.int64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
) -> None:
    """Widen first and last by the samples of runs, in any order."""
    for which in range(ends.size):
        for index in range(starts[which], ends[which]):
            first[which], last[which] = min(first[which], ts[index]), max(last[which], ts[index])


@helper
def _largest(counts: NDArray[np.uint32]) -> int:
    largest = signed(0)
    for count in counts:
        largest = max(largest, signed(count))
    return largest

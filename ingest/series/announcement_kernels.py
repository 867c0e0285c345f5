"""Kernel of the announcements: the (row, index epoch) pairs of a request to announce now, new or due for renewal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array3, short_kernel
from tsdb.model.window import EPOCH_MS

_PHASES = np.uint64(EPOCH_MS)


@short_kernel
def due_kernel(
    good: NDArray[np.bool_],
    starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    series_id: NDArray[np.uint64],
    known: Array3[np.int64],
    now_ms: int,
    out_row: NDArray[np.int64],
    out_epoch: NDArray[np.int64],
    out_new: NDArray[np.bool_],
) -> int:
    """Fill the outputs (2 x rows each) and return their count.

    known (rows, 2, 3) holds, per parity of epoch: epoch, known until, renew at. The samples of a good row span less
    than one epoch, so they lie in at most two, of different parity.
    """
    count = 0
    for row in range(good.size):
        if not good[row]:
            continue
        phase = np.int64(series_id[row] % _PHASES)
        start = end = np.int64(0)
        seen = 0
        for index in range(starts[row], starts[row + 1]):
            if start <= ts_ms[index] < end:
                continue
            epoch = (ts_ms[index] + phase) // EPOCH_MS
            start = epoch * EPOCH_MS - phase
            end = start + EPOCH_MS
            way = epoch & 1
            if seen & (1 << way):
                continue
            seen |= 1 << way
            is_known = known[row, way, 0] == epoch and known[row, way, 1] > now_ms
            if is_known and known[row, way, 2] > now_ms:
                continue
            out_row[count] = row
            out_epoch[count] = epoch
            out_new[count] = not is_known
            count += 1
    return count

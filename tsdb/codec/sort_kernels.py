"""Sorting: the order of integer keys, equal ones as they came. numba's own sorts take it 2 s to compile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel
from tsdb.codec.memory_kernels import copy_bytes

RUN = 16  # Keys sorted by insertion before merging starts.


@kernel
def argsort_kernel(keys: NDArray[np.int64], start: int, places: NDArray[np.int64], scratch: NDArray[np.int64]) -> None:
    """Fill places so that keys[start + places[i]] ascend over i. places has each number from 0 to places.size - 1 once.

    Bottom-up merge sort; two runs that are in order already are not merged. scratch: memory as large as places.
    """
    count = places.size
    for low in range(0, count, RUN):
        for at in range(low, min(low + RUN, count)):
            to = at
            while to > low and keys[start + places[to - 1]] > keys[start + at]:
                places[to] = places[to - 1]
                to -= 1
            places[to] = at
    width = RUN
    while width < count:
        for low in range(0, count - width, 2 * width):
            middle, high = low + width, min(low + 2 * width, count)
            if keys[start + places[middle - 1]] <= keys[start + places[middle]]:
                continue
            left, left_end, right, to = 0, width, middle, low
            copy_bytes(scratch, 0, places, low * 8, width * 8)
            while left < left_end and right < high:
                if keys[start + scratch[left]] <= keys[start + places[right]]:
                    places[to] = scratch[left]
                    left += 1
                else:
                    places[to] = places[right]
                    right += 1
                to += 1
            copy_bytes(places, to * 8, scratch, left * 8, (left_end - left) * 8)
        width *= 2

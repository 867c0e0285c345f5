"""Kernel that numbers the names and values of many series' labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, kernel
from tsdb.index.interned_kernels import equal_kernel, hash_kernel

SEPARATOR = 0xFF  # Separates names and values of canonical labels; no UTF-8 text contains it.


@kernel
def number_texts_kernel(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    seed: np.uint64,
    slots: NDArray[np.int32],
    texts: Array2[np.int64],
    numbers: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> int:
    """Number the texts of canonical labels in the order of their first use. Returns the number of distinct texts.

    data: labels of all series, one after another; those of series i end at ends[i]. slots: all -1, a power of two, at
    least twice the number of texts. texts (distinct, 2): start and end of each. numbers: number of each text in the
    data. counts: number of texts of each series.

    """
    mask = np.uint64(slots.size - 1)
    found, distinct, start = 0, 0, 0
    for series in range(ends.size):
        first = found
        for at in range(start, ends[series] + 1):
            if at < ends[series] and data[at] != SEPARATOR:
                continue
            if at == ends[series] and start == at and found == first:
                break  # The series has no labels.
            slot = hash_kernel(data, start, at, seed) & mask
            while slots[slot] >= 0:
                known = slots[slot]
                if texts[known, 1] - texts[known, 0] == at - start and equal_kernel(
                    data, texts[known, 0], data, start, at - start
                ):
                    break
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] < 0:
                slots[slot] = distinct
                texts[distinct, 0], texts[distinct, 1] = start, at
                distinct += 1
            numbers[found] = slots[slot]
            found += 1
            start = at + 1
        start = ends[series]
        counts[series] = found - first
    return distinct

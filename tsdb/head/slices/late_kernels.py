"""Late list: rebuilding of the chains after entries were taken out, and grouping of entries that belong together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import kernel


@kernel
def relink_kernel(ref: NDArray[np.uint32], prev: NDArray[np.uint32], last: NDArray[np.uint32], count: int) -> None:
    """Chain the first `count` entries per ref, in their order; `last` comes in as zeros."""
    for entry in range(count):
        prev[entry] = last[ref[entry]]
        last[ref[entry]] = entry + 1


@kernel
def group_kernel(group: NDArray[np.int64], starts: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    """order (n,): positions by group, each group's ascending; group g is order[starts[g]:starts[g + 1]].

    starts (groups + 1,) comes in as zeros. A counting sort: 10 x np.argsort on 100 k entries of 10 k groups.
    """
    for index in range(group.size):
        starts[group[index] + 1] += 1
    for number in range(starts.size - 1):
        starts[number + 1] += starts[number]
    for index in range(group.size):
        at = starts[group[index]]
        order[at] = index
        starts[group[index]] = at + 1
    # Each start has moved to the start of the next group.
    for number in range(starts.size - 1, 0, -1):
        starts[number] = starts[number - 1]
    starts[0] = 0

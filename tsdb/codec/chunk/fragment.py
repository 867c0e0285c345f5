"""Fragment: samples of one pack in one window, each with its order. A chunk encodes a fragment, and a merge joins
fragments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Fragment:
    """Samples of k series, n in all, of the pack `pack_id` (unsigned 64 bit) in the window that starts at
    window_start_ms, ms since epoch UTC.

    series_id: uint64 (k,), strictly ascending. sample_start: int64 (k + 1,), series i has the samples
    [sample_start[i], sample_start[i + 1]), at least one. ts_ms: int64 (n,), strictly ascending within a series, ms
    since epoch. value: float64 (n,), bit for bit. order: int64 (n,), the log offset that ranks a sample against another
    of the same (series, timestamp): the higher wins.
    """

    pack_id: int
    window_start_ms: int
    series_id: NDArray[np.uint64]
    sample_start: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    order: NDArray[np.int64]

    @property
    def series(self) -> int:
        return len(self.series_id)

    @property
    def samples(self) -> int:
        return len(self.ts_ms)

    def part(self, first: int, last: int) -> Fragment:
        """The series [first, last); arrays of samples are shared."""
        start, end = int(self.sample_start[first]), int(self.sample_start[last])
        return Fragment(
            self.pack_id,
            self.window_start_ms,
            self.series_id[first:last],
            self.sample_start[first : last + 1] - start,
            self.ts_ms[start:end],
            self.value[start:end],
            self.order[start:end],
        )

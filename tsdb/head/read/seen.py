"""Finds the first and last sample time of each series. Exact. It is computed on request, so that apply does not pay for
it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.head.read.gather import Runs
from tsdb.head.read.seen_kernels import seen_in_runs_kernel, seen_in_slices_kernel
from tsdb.head.slices.sealed_slice import SealedSlices


def seen(
    held: SealedSlices, refs: NDArray[np.uint32], start_ms: int, end_ms: int, overlay: Runs
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(first, last) time of a sample in [start_ms, end_ms) per ref; (INT64_MAX, INT64_MIN) for a ref without any."""
    limits = np.iinfo(np.int64)
    first, last = np.full(len(refs), limits.max, np.int64), np.full(len(refs), limits.min, np.int64)
    for rows in (held.below, held.sealed):
        status = seen_in_slices_kernel(rows, refs, start_ms, end_ms, first, last)
        assert status == 0, "a sealed time axis does not decode"
    seen_in_runs_kernel(overlay.starts, overlay.ends, overlay.ts_ms, first, last)
    return first, last

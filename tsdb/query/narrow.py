"""Narrow: the part of a fragment that a query wants. Pure."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.fragment import Fragment
from tsdb.query.past_kernels import copy_runs_kernel, wanted_runs_kernel

_Element = TypeVar("_Element", bound=np.generic)


def narrow(fragment: Fragment, wanted: NDArray[np.uint64], start_ms: int, end_ms: int) -> Fragment:
    """Samples in [start_ms, end_ms) of the series `wanted` (uint64, ascending); series without any are left out.

    The fragment itself when that is all of it.
    """
    series = fragment.series
    which, low, high = (np.empty(series, np.int64) for _ in range(3))
    found = wanted_runs_kernel(
        _own(fragment.series_id, np.uint64),
        _own(fragment.sample_start, np.int64),
        _own(fragment.ts_ms, np.int64),
        _own(wanted, np.uint64),
        start_ms,
        end_ms,
        which,
        low,
        high,
    )
    which, low, high = which[:found], low[:found], high[:found]
    starts = np.zeros(found + 1, np.int64)
    np.cumsum(high - low, out=starts[1:])
    samples = int(starts[-1])
    if samples == fragment.samples:
        return fragment
    ts_ms, value, order = np.empty(samples, np.int64), np.empty(samples, np.float64), np.empty(samples, np.int64)
    copy_runs_kernel(
        _own(fragment.ts_ms, np.int64),
        _own(fragment.value, np.float64),
        _own(fragment.order, np.int64),
        low,
        high,
        starts,
        ts_ms,
        value,
        order,
    )
    return Fragment(fragment.pack_id, fragment.window_start_ms, fragment.series_id[which], starts, ts_ms, value, order)


def _own(array: NDArray[_Element], dtype: type[_Element]) -> NDArray[_Element]:
    """Contiguous, writeable and of this type, so that one kernel is compiled; copied only where it is not."""
    return np.require(array, dtype, ["C", "W"])

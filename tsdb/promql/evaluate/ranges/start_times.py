"""Start timestamps tell of resets that values do not show. The rules are those of Prometheus 3.14 (promql/functions.go,
`isStartTimestampReset`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.vectors.block import Samples

Mask = NDArray[np.bool_]
NO_RESETS = np.zeros(0, np.bool_)
NO_STARTS = np.zeros(0, np.int64)


def start_resets(samples: Samples) -> Mask:
    """Whether the start timestamp of a sample tells of a reset after the sample before it in its row, bool (samples,);
    of size 0 where no sample has a start timestamp."""
    if samples.start_ms is None:
        return NO_RESETS
    has_before = np.ones(len(samples.ts_ms), np.bool_)
    has_before[_firsts(samples)] = False
    return are_start_resets(samples.ts_ms, samples.start_ms, has_before)


def are_start_resets(ts_ms: NDArray[np.int64], start_ms: NDArray[np.int64], has_before: Mask) -> Mask:
    """The rule of `start_resets` on columns. has_before: bool (samples,), whether the sample before is of the same row.

    A start after the sample before it tells of a reset. A start at that sample does where the one of that sample is
    known: samples of a sum of deltas begin where the one before them ends, and so do those of a sum whose start is
    unknown.
    """
    before_ms, before_start_ms = _before(ts_ms), _before(start_ms)
    is_valid = has_before & (start_ms != 0) & (start_ms < ts_ms)
    is_known = (before_start_ms != 0) & (before_start_ms < before_ms)
    found: Mask = is_valid & ((start_ms > before_ms) | ((start_ms == before_ms) & is_known))
    return found


def start_overlaps(samples: Samples) -> Mask:
    """Whether a sample starts before the sample before it in its row and with another start, bool (samples,)."""
    assert samples.start_ms is not None, "samples without start timestamps have no overlaps"
    start_ms = samples.start_ms
    found: Mask = (start_ms != 0) & (start_ms < _before(samples.ts_ms)) & (start_ms != _before(start_ms))
    found[_firsts(samples)] = False
    return found


def _before(column: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((column[:1], column[:-1]))


def _firsts(samples: Samples) -> NDArray[np.int64]:
    return samples.starts[:-1][np.diff(samples.starts) > 0]

"""Merge: fragments into one, per (series, timestamp) the sample with the highest order.

One pure function for readers, loader and batch jobs. Commutative, associative, and merging anything twice changes
nothing: so it does not matter what was emitted again, folded, or read in which order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsdb.codec.fragment import Fragment
from tsdb.history.merge_kernels import FragmentArrays, merge_two_kernel


def merge(fragments: Sequence[Fragment]) -> Fragment:
    """One fragment of all samples; at least one is given, and a single one is returned as it is.

    They may be of several windows or packs: the result is named after the first pack and the earliest window. Samples
    of one (series, timestamp) and one order are the same sample; were they not, the higher bits would stand.
    """
    assert fragments, "nothing to merge"
    window_start_ms = min(fragment.window_start_ms for fragment in fragments)
    # Neighbours in pairs, then the pairs: each sample is copied log2(n) times, not n times.
    level = list(fragments)
    while len(level) > 1:
        odd = level[len(level) - len(level) % 2 :]
        level = [_merge_two(a, b) for a, b in zip(level[0::2], level[1::2], strict=False)] + odd
    merged = level[0]
    if (merged.pack_id, merged.window_start_ms) == (fragments[0].pack_id, window_start_ms):
        return merged
    return Fragment(
        fragments[0].pack_id,
        window_start_ms,
        merged.series_id,
        merged.sample_start,
        merged.ts_ms,
        merged.value,
        merged.order,
    )


def _merge_two(a: Fragment, b: Fragment) -> Fragment:
    series_max, samples_max = len(a.series_id) + len(b.series_id), len(a.ts_ms) + len(b.ts_ms)
    out = FragmentArrays(
        np.empty(series_max, np.uint64),
        np.empty(series_max + 1, np.int64),
        np.empty(samples_max, np.int64),
        np.empty(samples_max, np.uint64),
        np.empty(samples_max, np.int64),
    )
    series = merge_two_kernel(_columns(a), _columns(b), out)
    samples = int(out.sample_start[series])
    return Fragment(
        a.pack_id,
        min(a.window_start_ms, b.window_start_ms),
        out.series_id[:series],
        out.sample_start[: series + 1],
        out.ts_ms[:samples],
        out.value[:samples].view(np.float64),
        out.order[:samples],
    )


def _columns(fragment: Fragment) -> FragmentArrays:
    """Contiguous, writeable and of these types, so that one kernel is compiled; what decoding returns is not copied."""
    return FragmentArrays(
        np.require(fragment.series_id, np.uint64, ["C", "W"]),
        np.require(fragment.sample_start, np.int64, ["C", "W"]),
        np.require(fragment.ts_ms, np.int64, ["C", "W"]),
        np.require(fragment.value, np.float64, ["C", "W"]).view(np.uint64),
        np.require(fragment.order, np.int64, ["C", "W"]),
    )

"""Merge: joins several fragments into one. Of samples with one (series, timestamp) the highest order wins.

One pure function for readers, loader and batch jobs. It is commutative and associative, and merging a fragment twice
changes nothing: so repeated chunks, folds and the order of reads do not matter. Details go with their samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.merge_kernels import FragmentArrays, merge_two_kernel
from tsdb.model.details import joined_details


def merge(fragments: Sequence[Fragment]) -> Fragment:
    """One fragment of all samples. At least one fragment is given; a single fragment is returned unchanged.

    Fragments may come from several windows or packs: the result has the first pack and the earliest window. Samples of
    one (series, timestamp) and one order are the same sample; if they differed, the higher bits would win, then a
    histogram, then the higher start timestamp.
    """
    assert fragments, "nothing to merge"
    if len(fragments) > 1 and any(fragment.details is not None for fragment in fragments):
        return _merge_detailed(fragments)
    window_start_ms = min(fragment.window_start_ms for fragment in fragments)
    # Neighbours are merged in pairs, then the pairs: each sample is copied log2(n) times, not n times.
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
        merged.details,
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


def _merge_detailed(fragments: Sequence[Fragment]) -> Fragment:
    """Merge by one sort, which says where each sample comes from."""
    series_id = np.concatenate([np.repeat(one.series_id, np.diff(one.sample_start)) for one in fragments])
    ts_ms, value, order = (
        np.concatenate(columns)
        for columns in zip(*((one.ts_ms, one.value, one.order) for one in fragments), strict=True)
    )
    details = joined_details([(one.samples, one.details) for one in fragments])
    assert details is not None
    last_keys: list[NDArray[np.int64]] = []
    if details.start_ms is not None:
        last_keys.append(details.start_ms)
    if details.histogram_of is not None:
        last_keys.append((details.histogram_of >= 0).astype(np.int64))
    rows = np.lexsort((*last_keys, value.view(np.uint64), order, ts_ms, series_id))
    ids, times = series_id[rows], ts_ms[rows]
    wins = np.append((ids[1:] != ids[:-1]) | (times[1:] != times[:-1]), True)
    rows, ids = rows[wins], ids[wins]
    distinct, first = np.unique(ids, return_index=True)
    return Fragment(
        fragments[0].pack_id,
        min(fragment.window_start_ms for fragment in fragments),
        distinct,
        np.append(first, len(rows)).astype(np.int64),
        ts_ms[rows],
        value[rows],
        order[rows],
        details.take(rows),
    )


def _columns(fragment: Fragment) -> FragmentArrays:
    """Contiguous, writable arrays of fixed types, so that one kernel is compiled. Decoded arrays are not copied."""
    return FragmentArrays(
        np.require(fragment.series_id, np.uint64, ["C", "W"]),
        np.require(fragment.sample_start, np.int64, ["C", "W"]),
        np.require(fragment.ts_ms, np.int64, ["C", "W"]),
        np.require(fragment.value, np.float64, ["C", "W"]).view(np.uint64),
        np.require(fragment.order, np.int64, ["C", "W"]),
    )

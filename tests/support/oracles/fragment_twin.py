"""Fragments as dicts, and a merge simple enough to check by reading."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import numpy as np

from tsdb.codec.chunk.chunk import Fragment

Samples = Mapping[tuple[int, int], tuple[int, int]]  # (series_id, ts_ms): (order, bits of the value)


def fragment_of(samples: Samples, pack_id: int = 1, window_start_ms: int = 0) -> Fragment:
    """The fragment of these samples."""
    keys = sorted(samples)
    series = sorted({series_id for series_id, _ in keys})
    counts = [sum(key[0] == series_id for key in keys) for series_id in series]
    return Fragment(
        pack_id,
        window_start_ms,
        np.array(series, np.uint64),
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64),
        np.array([ts_ms for _, ts_ms in keys], np.int64),
        np.array([samples[key][1] for key in keys], np.uint64).view(np.float64),
        np.array([samples[key][0] for key in keys], np.int64),
    )


def samples_of(fragment: Fragment) -> dict[tuple[int, int], tuple[int, int]]:
    """The samples of a fragment. Asserts the rules of Fragment on its arrays."""
    assert fragment.sample_start[0] == 0
    assert fragment.sample_start[-1] == len(fragment.ts_ms) == len(fragment.value) == len(fragment.order)
    assert (np.diff(fragment.sample_start) > 0).all()
    assert (fragment.series_id[1:] > fragment.series_id[:-1]).all()
    series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
    columns = zip(
        series, fragment.ts_ms.tolist(), fragment.order.tolist(), fragment.value.view(np.uint64).tolist(), strict=True
    )
    rows = [((series_id, ts_ms), (order, bits)) for series_id, ts_ms, order, bits in columns]
    assert [key for key, _ in rows] == sorted({key for key, _ in rows})
    return dict(rows)


def merged_twin(parts: Iterable[Samples]) -> dict[tuple[int, int], tuple[int, int]]:
    """The sample with the highest order of each (series, timestamp); of equal orders the higher bits win."""
    merged: dict[tuple[int, int], tuple[int, int]] = {}
    for part in parts:
        for key, sample in part.items():
            merged[key] = max(sample, merged.get(key, sample))
    return merged


def bits(value: float) -> int:
    """Bits of a float64 as an unsigned integer."""
    number: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return number

"""Warm-up of heads: one head runs every operation once, so that no first write or read compiles."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c import crc32c
from tsdb.codec.records.log_record import decode_records, encode_record
from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.head.gather_many import ManyRefs, columns_many, snapshot_many
from tsdb.head.head import SAMPLES_MAX, Head
from tsdb.head.head_image import image_of, restore
from tsdb.head.state import HeadLimits
from tsdb.index.warm_up import warm_up_index
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.time_set import SliceLengths, TimeSet

TIMES = TimeSet("warm_up", 1000, 5, 15, 8, 10, 20, 100, 1000)
SLICES = SliceLengths(10, 20)
HOLD_MS = 100
SERIES = 600  # More columns than the first size of a slice's table of time axes: growing it uses a further kernel.
STEPS = 20
STEP_MS = 5


@functools.cache
def warm_up() -> None:
    """Compile, or load from the cache, all kernels that a head calls; once per process."""
    warm_up_index()
    head = _head()
    ids = _register(head)
    _apply(head, ids, 0, 100, [100] * len(ids))
    for step in range(1, STEPS):
        now_ms = 100 + step * STEP_MS
        # Samples that are live, out of order, late, and below coverage.
        _apply(head, ids[:2], step, now_ms, [now_ms - back for back in (*range(60), 3, 3)])
        head.maintain()
        _read(head, now_ms)
    _restore(head)


def _head() -> Head:
    return Head(
        0,
        slices=SLICES,
        time_set=TIMES,
        hold_ms=HOLD_MS,
        coverage_start_ms=STEP_MS,
        since_offset=0,
        from_start=False,
        limits=HeadLimits(fold_entries_min=1),
    )


def _restore(head: Head) -> None:
    """Restore a head as a start does from a snapshot, because checksums of snapshots use a kernel too."""
    crc32c(b"")
    restore(_head(), image_of(head))


def _register(head: Head) -> NDArray[np.uint64]:
    labels = [canonical_labels({"__name__": f"warm_up_{number}"}) for number in range(SERIES)]
    pairs = [encode_announcement(series_id(canonical), 0, 1, canonical) for canonical in labels]
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    records = decode_announcements(b"".join(keys), _starts(keys), b"".join(values), _starts(values))
    head.register(records, b"".join(values), np.zeros(len(pairs), np.int64))
    return records.series_id


def _apply(head: Head, ids: NDArray[np.uint64], offset: int, now_ms: int, times: Sequence[int]) -> None:
    ts_ms = np.array(times, np.int64)
    some_ids = np.resize(ids, len(times))
    # Noise, decimals and a constant take different paths through the encoder.
    values = np.where(ts_ms % 3 == 0, np.sin(ts_ms), ts_ms / 10)
    pack = np.array([7], np.uint64), np.array([len(times)], np.uint32)
    data = encode_record(*pack, some_ids, ts_ms, values)
    records = decode_records(data, np.array([0, len(data)], np.int64))
    head.unknown_ids(records)
    head.apply(records, np.array([offset], np.int64), np.array([now_ms], np.int64))


def _read(head: Head, now_ms: int) -> None:
    refs = head.index.all_refs()
    start_ms, end_ms = now_ms - 33, now_ms + 1
    head.gather_raw(refs, start_ms, end_ms)
    head.gather_raw(refs, start_ms, end_ms, step_ms=7, aggregation=2)
    head.gather_raw(refs, 0, end_ms, partial=True)
    head.gather_columns(refs, start_ms, end_ms)
    head.gather_columns(refs, 0, end_ms)
    many = ManyRefs.of([refs])
    held = snapshot_many([head], many, start_ms, end_ms).held
    columns_many([one.sealed for one in held], many, samples_max=SAMPLES_MAX)
    head.seen(refs, start_ms, end_ms)


def _starts(parts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)

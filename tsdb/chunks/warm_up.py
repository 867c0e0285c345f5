"""Warm-up of the chunk stage: one stage passes through a window and a late minute, so that real ones need not
compile."""

from __future__ import annotations

import numpy as np

from tsdb.chunks.progress import Progress
from tsdb.chunks.stage import ChunkStage
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.records.log_record import decode_records, encode_record
from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.head.warm_up import warm_up as warm_up_head
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.time_set import SliceLengths, TimeSet

TIMES = TimeSet("warm_up", 1000, 5, 15, 8, 10, 20, 100, 100_000)
SLICES = SliceLengths(10, 20)
STEPS, STEP_MS = 60, 35


def warm_up() -> None:
    """Compile, or load from the cache, all kernels that the chunk stage calls."""
    warm_up_head()
    stage = ChunkStage(0, Progress(0, 0), 0, times=TIMES, slices=SLICES)
    canonical = canonical_labels({"__name__": "warm_up"})
    number = series_id(canonical)
    key, value = encode_announcement(number, 0, 1, canonical)
    starts = np.array([0, len(key)], np.int64), np.array([0, len(value)], np.int64)
    stage.register(decode_announcements(key, starts[0], value, starts[1]), value, np.zeros(1, np.int64))
    for step in range(STEPS):
        _apply(stage, number, step, step * STEP_MS)
        while (emission := stage.due(1 << 40)) is not None:
            stage.finish(emission)
            for record in emission.records:
                decode_chunk(record.value)


def _apply(stage: ChunkStage, number: int, offset: int, now_ms: int) -> None:
    ts_ms = np.array([max(now_ms - back, 0) for back in (0, 3, 40, 500)], np.int64)
    values = np.sin(ts_ms) if offset % 2 else ts_ms / 10
    pack = np.array([1], np.uint64), np.array([len(ts_ms)], np.uint32)
    data = encode_record(*pack, np.full(len(ts_ms), number, np.uint64), ts_ms, values)
    records = decode_records(data, np.array([0, len(data)], np.int64))
    stage.unknown_ids(records)
    stage.apply(records, np.array([offset], np.int64), np.array([now_ms], np.int64))
    stage.maintain()

"""Tables of a Parquet sink: fragments and announcements as rows. Layout: docs/formats/parquet.md, version 1. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tsdb.codec.chunk.fragment import Fragment
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.series_record import Announcement
from tsdb.model.labels import labels_json

SAMPLES = ("series_id", "ts_ms", "value", "order", "pack_id", "window_start_ms", "kind")
SERIES = pa.schema(
    [
        ("series_id", pa.uint64()),
        ("epoch", pa.int32()),
        ("partition", pa.int32()),
        ("pack_id", pa.uint64()),
        ("labels", pa.string()),
    ]
)


def samples_table(chunks: Sequence[tuple[ChunkKey, Fragment]]) -> pa.Table:
    """A table with one row per sample, chunk by chunk. At least one chunk is given."""
    fragments = [fragment for _, fragment in chunks]
    counts = np.array([fragment.samples for fragment in fragments])
    per_series = np.concatenate([np.diff(fragment.sample_start) for fragment in fragments])
    pack_ids = np.array([key.pack_id for key, _ in chunks], np.uint64)
    windows = np.array([key.window_start_ms for key, _ in chunks], np.int64)
    kinds = pa.array([kind.name.lower() for kind in Kind])
    kind_of = np.array([key.kind for key, _ in chunks], np.int8)
    columns = (
        pa.array(np.repeat(np.concatenate([fragment.series_id for fragment in fragments]), per_series)),
        pa.array(np.concatenate([fragment.ts_ms for fragment in fragments])),
        pa.array(np.concatenate([fragment.value for fragment in fragments])),
        pa.array(np.concatenate([fragment.order for fragment in fragments])),
        pa.array(np.repeat(pack_ids, counts)),
        pa.array(np.repeat(windows, counts)),
        pa.DictionaryArray.from_arrays(pa.array(np.repeat(kind_of, counts)), kinds),
    )
    return pa.Table.from_arrays(list(columns), names=SAMPLES)


def series_table(announced: Sequence[tuple[Announcement, int]]) -> pa.Table:
    """A table with one row per announcement. announced: pairs of announcement and partition."""
    columns = (
        [one.series_id for one, _ in announced],
        [one.epoch for one, _ in announced],
        [partition for _, partition in announced],
        [one.pack_id for one, _ in announced],
        [labels_json(one.canonical) for one, _ in announced],
    )
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SERIES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SERIES)

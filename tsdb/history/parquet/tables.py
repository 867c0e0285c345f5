"""Tables of a Parquet sink: fragments and announcements as rows. Layout: docs/formats/parquet.md, version 1. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from tsdb.codec.chunk_key import ChunkKey
from tsdb.codec.fragment import Fragment
from tsdb.codec.series_record import Announcement
from tsdb.model.labels import labels_json

SAMPLES = pa.schema(
    [
        ("series_id", pa.uint64()),
        ("ts_ms", pa.int64()),
        ("value", pa.float64()),
        ("order", pa.int64()),
        ("pack_id", pa.uint64()),
        ("kind", pa.string()),
    ]
)
SERIES = pa.schema(
    [
        ("series_id", pa.uint64()),
        ("epoch", pa.int32()),
        ("partition", pa.int32()),
        ("pack_id", pa.uint64()),
        ("labels", pa.string()),
    ]
)


def samples_table(chunks: Iterable[tuple[ChunkKey, Fragment]]) -> pa.Table:
    """A row a sample, chunk by chunk."""
    return pa.concat_tables([SAMPLES.empty_table(), *(_rows(key, fragment) for key, fragment in chunks)])


def series_table(announced: Sequence[tuple[Announcement, int]]) -> pa.Table:
    """A row an announcement; the second of each pair is the partition."""
    columns = (
        [one.series_id for one, _ in announced],
        [one.epoch for one, _ in announced],
        [partition for _, partition in announced],
        [one.pack_id for one, _ in announced],
        [labels_json(one.canonical) for one, _ in announced],
    )
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SERIES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SERIES)


def _rows(key: ChunkKey, fragment: Fragment) -> pa.Table:
    repeats = np.diff(fragment.sample_start)
    columns = (
        pa.array(np.repeat(fragment.series_id, repeats)),
        pa.array(fragment.ts_ms),
        pa.array(fragment.value),
        pa.array(fragment.order),
        pa.array(np.full(fragment.samples, fragment.pack_id, np.uint64)),
        pa.repeat(pa.scalar(key.kind.name.lower(), pa.string()), fragment.samples),
    )
    return pa.Table.from_arrays(list(columns), schema=SAMPLES)

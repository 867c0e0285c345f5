"""Series: the table beside that of the samples that has each announced series, by index epoch and metric.

The keeper commits the series before samples that need them. A row may be there twice: after a kill, or beside a second
keeper; readers take it once. One snapshot names the offsets of `series` up to which the table has every record.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tsdb.codec.records.series_record import Announcement
from tsdb.history.iceberg.catalog import VERSION, VERSION_PROPERTY, buckets_of_series, translate_table_errors
from tsdb.history.iceberg.emission import FileChange, commit_files
from tsdb.history.iceberg.files import file_schema, write_file
from tsdb.history.iceberg.rows import BLOCK_ROWS, MetricBuckets, text_of
from tsdb.history.rows import signed
from tsdb.model.labels import metric_name

OFFSETS_PROPERTY = "tsdb.series-offsets"

Announced = tuple[Announcement, int]  # And its partition.


def written_offsets(table: Table) -> dict[int, int]:
    """Offsets of `series` below which the table has every announcement; empty where no snapshot says it."""
    for snapshot in reversed(table.metadata.snapshots):
        properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
        if OFFSETS_PROPERTY in properties:
            offsets: dict[str, int] = json.loads(properties[OFFSETS_PROPERTY])
            return {int(number): int(at) for number, at in offsets.items()}
    return {}


def write_series(table: Table, rows: Sequence[Announced], offsets: Mapping[int, int]) -> None:
    """Commit these rows in one snapshot. Raises as emit."""
    with translate_table_errors(f"table {'.'.join(table.name())}"):
        commit_files(table, FileChange(list(_files(table, rows)), []), series_properties(offsets))


def series_properties(offsets: Mapping[int, int]) -> dict[str, str]:
    """Properties of the snapshot."""
    named = json.dumps({str(one): at for one, at in sorted(offsets.items())})
    return {VERSION_PROPERTY: VERSION, OFFSETS_PROPERTY: named}


def _files(table: Table, rows: Sequence[Announced]) -> Iterator[DataFile]:
    bucket_of = MetricBuckets(buckets_of_series(table))
    groups: dict[tuple[int, int], list[tuple[bytes, int, Announced]]] = defaultdict(list)
    for row in rows:
        metric = metric_name(row[0].canonical)
        groups[row[0].epoch, bucket_of(metric)].append((metric, signed(row[0].series_id), row))
    schema = file_schema(table)
    code = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([one.with_type(code) if one.name == "metric" else one for one in schema])
    for place, some in sorted(groups.items()):
        some.sort(key=lambda one: one[:2])
        yield write_file(table, schema, _blocks(some, schema), place)


def _blocks(rows: Sequence[tuple[bytes, int, Announced]], schema: pa.Schema) -> Iterator[pa.Table]:
    for first in range(0, len(rows), BLOCK_ROWS):
        block = rows[first : first + BLOCK_ROWS]
        given = {
            "epoch": pa.array([row[0].epoch for *_, row in block], pa.int32()),
            "metric": pa.array([text_of(metric) for metric, *_ in block], pa.string()).dictionary_encode(),
            "series_id": pa.array([series for _, series, _ in block], pa.int64()),
            "pack_id": pa.array(np.array([row[0].pack_id for *_, row in block], np.uint64).view(np.int64)),
            "partition": pa.array([row[1] for *_, row in block], pa.int32()),
            "canonical": pa.array([row[0].canonical for *_, row in block], pa.binary()),
        }
        arrays = [given[one.name] if one.name in given else pa.nulls(len(block), one.type) for one in schema]
        yield pa.Table.from_arrays(arrays, schema=schema)

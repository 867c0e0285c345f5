"""Files: writes rows as Parquet files of the table, and finds the rows of its files that newer ones replace.

A file is written once and belongs to the table from the commit on; a file whose commit never came stays behind unread.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.iceberg.rows import (
    BLOCK_ROWS,
    DETAIL_COLUMNS,
    ROW_COLUMNS,
    BucketRows,
    arrow_blocks,
    encoded_schema,
    with_used_texts,
)
from tsdb.history.iceberg.state import CHANGED
from tsdb.model.errors import ConfigMismatch
from tsdb.model.times import DAY_MS

ZSTD_LEVEL = 3
# Values of a node exporter take 0.95 bytes each without a dictionary, 1.14 with one, and a third less CPU.
DICTIONARY = ["metric", "pack_id", "partition", "labels.key_value.key", "labels.key_value.value", "series_id", "tenant"]
ENCODINGS = {"ts": "DELTA_BINARY_PACKED", "order": "DELTA_BINARY_PACKED"}
KEYS = ["series_id", "ts", "order"]
_INT64_END = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Overlap:
    """Rows of one group beside those of the table. fresh: bool (n,), rows that the table has neither in the same nor in
    a newer version. replaced: by file, int64 row numbers of older versions."""

    fresh: NDArray[np.bool_]
    replaced: list[tuple[DataFile, NDArray[np.int64]]] = field(default_factory=list)


def write_group(table: Table, group: BucketRows) -> DataFile:
    """A new file with the rows of a group."""
    columns = ROW_COLUMNS if group.fragment.details is None else (*ROW_COLUMNS, *DETAIL_COLUMNS)
    schema = encoded_schema(file_schema(table, columns))
    return write_file(table, schema, arrow_blocks(group, schema), (group.day, group.bucket))


def write_blocks(table: Table, blocks: Iterable[pa.Table], columns: Collection[str], day: int, bucket: int) -> DataFile:
    """A new file with rows that were read from files of the table, in this order. columns: those that one of these
    files has. Dictionaries stay encoded."""
    schema = encoded_schema(file_schema(table, columns))
    return write_file(table, schema, (_with_schema(one, schema) for one in blocks), (day, bucket))


def write_without(table: Table, file: DataFile, rows: NDArray[np.int64]) -> DataFile | None:
    """A new file with the rows of another except these; None when none is left. Holds one row group in memory."""
    with table.io.new_input(file.file_path).open() as stream:
        source = pq.ParquetFile(stream)
        if source.metadata.num_rows == len(rows):
            return None
        schema = file_schema(table, source.schema_arrow.names)
        place = file.partition[0], file.partition[1]
        return write_file(table, schema, _blocks_without(source, rows, schema), place)


def _blocks_without(source: pq.ParquetFile, rows: NDArray[np.int64], schema: pa.Schema) -> Iterator[pa.Table]:
    first = 0
    for number in range(source.num_row_groups):
        block = source.read_row_group(number)
        keep = np.ones(len(block), np.bool_)
        keep[rows[(rows >= first) & (rows < first + len(block))] - first] = False
        first += len(block)
        yield _with_schema(block.filter(pa.array(keep)), schema)


def _with_schema(block: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the schema; a column that the block lacks is null."""
    known = set(block.column_names)
    arrays = [block[one.name].cast(one.type) if one.name in known else pa.nulls(len(block), one.type) for one in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def file_schema(table: Table, columns: Collection[str] | None = None) -> pa.Schema:
    """Arrow's schema of a file of the table, which carries the ids of the columns. columns: those of the file; None:
    all. A column that a file lacks is null to every reader: the fifteen of a histogram cost a tenth of an emission."""
    whole = _small(schema_to_pyarrow(table.schema()))
    return whole if columns is None else pa.schema([one for one in whole if one.name in columns])


def _small(schema: pa.Schema) -> pa.Schema:
    return pa.schema([one.with_type(_small_type(one.type)) for one in schema])


def _small_type(kind: pa.DataType) -> pa.DataType:
    """Types with 32-bit offsets, as Parquet's reader gives them."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_small_type(key.type)), item.with_type(_small_type(item.type)))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_small_type(kind.value_field.type)))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_small_type(one.type)) for one in kind])
    return kind


def write_file(table: Table, schema: pa.Schema, blocks: Iterable[pa.Table], place: tuple[int, int]) -> DataFile:
    """A new file with these rows. place: values of the fields of the partitioning."""
    spec = table.spec()
    partition = Record(*place)
    key = PartitionKey(
        [PartitionFieldValue(one, value) for one, value in zip(spec.fields, place, strict=True)],
        spec,
        table.schema(),
    )
    # The path of a partition is for humans; readers take partitions from the manifests.
    path = table.location_provider().new_data_location(f"{uuid.uuid4().hex}.parquet", key)
    output = table.io.new_output(path)
    with output.create() as stream:
        writer = pq.ParquetWriter(
            stream,
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=[one for one in DICTIONARY if one.partition(".")[0] in schema.names],
            column_encoding={one: how for one, how in ENCODINGS.items() if one in schema.names},
            store_schema=False,  # Readers would get our dictionaries back instead of text.
            write_page_index=True,
        )
        with writer:
            for block in blocks:
                writer.write_table(with_used_texts(block), row_group_size=BLOCK_ROWS)
    metadata: pq.FileMetaData = writer.writer.metadata
    statistics = data_file_statistics_from_parquet_metadata(
        metadata,
        compute_statistics_plan(table.schema(), table.properties),
        parquet_path_to_id_mapping(table.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(output),
        sort_order_id=table.metadata.default_sort_order_id,
        spec_id=table.metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


class TableFiles:
    """The files of the table in a stretch of sample time, found in one pass over its manifests."""

    def __init__(self, table: Table, first_ms: int, last_ms: int) -> None:
        self._table = table
        self._of: dict[tuple[int, int], list[DataFile]] = defaultdict(list)
        self._ids = {name: table.schema().find_field(name).field_id for name in ("ts", "series_id")}
        if table.current_snapshot() is None:
            return
        within = f"ts >= '{_iso(first_ms)}' and ts <= '{_iso(last_ms)}'"
        for task in table.scan(row_filter=within).plan_files():
            if task.delete_files:
                raise ConfigMismatch(
                    f"file {task.file.file_path} has delete files, which another program wrote: rewrite the data files",
                    reason=CHANGED,
                )
            self._of[task.file.partition[0], task.file.partition[1]].append(task.file)

    def overlap(self, group: BucketRows) -> Overlap:
        """Compare a group with the rows of the table. Reads the keys of the row groups that may have one of its
        rows."""
        mine = _Keys(group.fragment)
        found = Overlap(np.ones(group.fragment.samples, np.bool_))
        for file in self._of.get((group.day, group.bucket), ()):
            if not self._may_overlap(file, mine):
                continue
            replaced = _compare(self._table, file, mine, found.fresh)
            if len(replaced):
                found.replaced.append((file, replaced))
        return found

    def _may_overlap(self, file: DataFile, mine: _Keys) -> bool:
        first, last = self._bounds(file, "ts")
        if last < mine.first_ms * 1000 or first > mine.last_ms * 1000:
            return False
        return mine.has_series_in(*self._bounds(file, "series_id"))

    def _bounds(self, file: DataFile, name: str) -> tuple[int, int]:
        number = self._ids[name]
        low, high = (file.lower_bounds or {}).get(number), (file.upper_bounds or {}).get(number)
        if low is None or high is None:
            return -_INT64_END, _INT64_END
        return int(from_bytes(LongType(), low)), int(from_bytes(LongType(), high))


class _Keys:
    """(series, timestamp) of a group's rows as ascending numbers, and the row and order of each."""

    def __init__(self, fragment: Fragment) -> None:
        signed = fragment.series_id.view(np.int64)
        self.series = np.sort(signed)
        of_row = np.repeat(np.searchsorted(self.series, signed), np.diff(fragment.sample_start))
        self.day_start_ms = fragment.window_start_ms
        keys = of_row * DAY_MS + (fragment.ts_ms - self.day_start_ms)
        self.rows = np.argsort(keys, kind="stable")
        self.keys = keys[self.rows]
        self.order = fragment.order[self.rows]
        self.first_ms, self.last_ms = int(fragment.ts_ms.min()), int(fragment.ts_ms.max())

    def has_series_in(self, low: int, high: int) -> bool:
        """Whether one of the series ids is in [low, high]."""
        at = int(np.searchsorted(self.series, low))
        return at < len(self.series) and int(self.series[at]) <= high


def _compare(table: Table, file: DataFile, mine: _Keys, fresh: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Row numbers of a file that the group replaces. Clears in `fresh` the rows that the file has already."""
    replaced = [np.empty(0, np.int64)]
    with table.io.new_input(file.file_path).open() as stream:
        source = pq.ParquetFile(stream)
        first = 0
        for number in range(source.num_row_groups):
            count = source.metadata.row_group(number).num_rows
            if _may_overlap(source.metadata.row_group(number), mine):
                block = source.read_row_group(number, columns=KEYS)
                replaced.append(first + _compare_rows(block, mine, fresh))
            first += count
    return np.concatenate(replaced)


def _may_overlap(row_group: pq.RowGroupMetaData, mine: _Keys) -> bool:
    for at in range(row_group.num_columns):
        column = row_group.column(at)
        if column.path_in_schema == "series_id" and column.statistics is not None and column.statistics.has_min_max:
            return mine.has_series_in(column.statistics.min, column.statistics.max)
    return True


def _compare_rows(block: pa.Table, mine: _Keys, fresh: NDArray[np.bool_]) -> NDArray[np.int64]:
    series = block["series_id"].to_numpy()
    at = np.minimum(np.searchsorted(mine.series, series), len(mine.series) - 1)
    rows = np.flatnonzero(mine.series[at] == series)
    if not len(rows):
        return rows
    ts_ms = pc.divide(block["ts"].cast(pa.int64()), 1000).to_numpy()[rows]
    keys = at[rows] * DAY_MS + (ts_ms - mine.day_start_ms)
    place = np.minimum(np.searchsorted(mine.keys, keys), len(mine.keys) - 1)
    both = mine.keys[place] == keys
    rows, place = rows[both], place[both]
    newer = mine.order[place] > block["order"].to_numpy()[rows]
    fresh[mine.rows[place[~newer]]] = False
    found: NDArray[np.int64] = rows[newer]
    return found


def _iso(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat()

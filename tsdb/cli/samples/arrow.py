"""Parquet and CSV: columns labels (JSON text), ts_ms, value; decoded by Arrow, with no Python object per sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsdb.cli.samples.rows import LabelTable, SampleRows, labels_of_json
from tsdb.model.errors import InvalidRequest

COLUMNS = ("labels", "ts_ms", "value")
CSV_BLOCK_BYTES = 16 << 20  # Bounds memory, and the length of one row.


def read_parquet(source: BinaryIO, name: str) -> Iterator[SampleRows]:
    """The whole file as one: order by time needs all of it. Takes about 20 bytes a row, plus the file when piped in."""
    try:
        # A pipe cannot be read from its end, where Parquet keeps its index.
        whole = source if source.seekable() else pa.BufferReader(source.read())
        file = pq.ParquetFile(whole, read_dictionary=["labels"])
        _need_columns(file.schema_arrow.names, name)
        table = file.read(columns=list(COLUMNS))
    except pa.ArrowException as error:
        raise _bad(name, error) from None
    yield _rows(table, name)


def read_csv(source: BinaryIO, name: str) -> Iterator[SampleRows]:
    """Block after block. Values may be NaN, +Inf, -Inf."""
    convert = pacsv.ConvertOptions(
        include_columns=list(COLUMNS),
        # Arrow takes no +Inf and reads NaN as a null, so values are parsed here.
        column_types={"labels": pa.string(), "ts_ms": pa.int64(), "value": pa.string()},
        null_values=[],
        strings_can_be_null=False,
    )
    try:
        with pacsv.open_csv(source, pacsv.ReadOptions(block_size=CSV_BLOCK_BYTES), convert_options=convert) as reader:
            for batch in reader:
                yield _rows(pa.Table.from_batches([batch]), name)
    except (pa.ArrowException, KeyError) as error:
        raise _bad(name, error) from None


def _rows(table: pa.Table, name: str) -> SampleRows:
    for column in COLUMNS:
        if table[column].null_count:
            raise InvalidRequest(f"{name}: column {column} has {table[column].null_count} nulls", reason="bad_input")
    labels, codes = _labels(table["labels"], name)
    return SampleRows(labels, codes, _times(table["ts_ms"], name), _values(table["value"], name))


def _labels(column: pa.ChunkedArray, name: str) -> tuple[list[bytes], NDArray[np.int32]]:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    else:
        column = _cast(column, pa.string(), "labels", name).dictionary_encode()
    chunks = column.chunks
    if not chunks:
        return [], np.empty(0, np.int32)
    texts = chunks[0].dictionary.cast(pa.string()).to_pylist()
    # Two texts may say the same labels, in another order or spacing.
    table = LabelTable()
    codes = np.array([table.code(labels_of_json(text, name)) for text in texts], np.int32)
    indices = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks])
    return table.labels, codes[indices]


def _times(column: pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    if pa.types.is_floating(column.type):
        raise InvalidRequest(f"{name}: ts_ms is {column.type}; want integers, ms since epoch UTC", reason="bad_input")
    if pa.types.is_timestamp(column.type):
        column = _cast(column, pa.timestamp("ms", column.type.tz), "ts_ms", name)
    times: NDArray[np.int64] = _cast(column, pa.int64(), "ts_ms", name).to_numpy()
    return times


def _values(column: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    if pa.types.is_string(column.type):
        column = pc.replace_substring_regex(column, pattern=r"^\+", replacement="")
    values: NDArray[np.float64] = _cast(column, pa.float64(), "value", name).to_numpy()
    return values


def _cast(column: pa.ChunkedArray, to: pa.DataType, what: str, name: str) -> pa.ChunkedArray:
    try:
        return column.cast(to)
    except pa.ArrowException as error:
        raise InvalidRequest(f"{name}: column {what}: {error}", reason="bad_input") from None


def _need_columns(names: list[str], name: str) -> None:
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise InvalidRequest(
            f"{name}: no column {', '.join(missing)}; want {', '.join(COLUMNS)}, got {', '.join(names[:10])}",
            reason="bad_input",
        )


def _bad(name: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(f"{name}: {' '.join(str(error).split())}", reason="bad_input")

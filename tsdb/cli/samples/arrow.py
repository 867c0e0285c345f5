"""Parquet and CSV: columns labels (JSON text), ts_ms, value; decoded by Arrow, with no Python object per sample."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsdb.cli.samples.rows import LabelTable, SampleRows, labels_of_json, shown
from tsdb.model.errors import InvalidRequest

COLUMNS = ("labels", "ts_ms", "value")
CSV_BLOCK_BYTES = 16 << 20  # Bounds memory, and the length of one row.


def read_parquet(source: BinaryIO, name: str) -> Iterator[SampleRows]:
    """The whole file as one: order by time needs all of it. Takes about 20 bytes a row, plus the file when piped in."""
    try:
        with _native(source) as whole:
            schema = pq.read_schema(whole)
            _need_columns(schema.names, name)
            if pa.types.is_nested(schema.field("labels").type):
                raise InvalidRequest(
                    f"{name}: column labels is {schema.field('labels').type}; want text", reason="bad_input"
                )
            whole.seek(0)
            table = pq.ParquetFile(whole, read_dictionary=["labels"]).read(columns=list(COLUMNS))
    except (pa.ArrowException, OSError) as error:
        raise _bad(name, error) from None
    yield _rows(table, name)


def _native(source: BinaryIO) -> pa.NativeFile:
    """The same bytes without Python: after an error Arrow's threads may still read while the interpreter ends."""
    path = getattr(source, "name", None)
    if source.seekable() and isinstance(path, str):
        return pa.OSFile(path)
    # A pipe cannot be read from its end, where Parquet keeps its index.
    return pa.BufferReader(source.read())


def read_csv(source: BinaryIO, name: str) -> Iterator[SampleRows]:
    """Block after block, each of whole rows. Values may be NaN, +Inf, -Inf."""
    header = _header(source, name)
    read = pacsv.ReadOptions(column_names=header, use_threads=False)
    convert = pacsv.ConvertOptions(
        include_columns=list(COLUMNS),
        # Arrow takes no +Inf and reads NaN as a null, so values are parsed here.
        column_types={"labels": pa.string(), "ts_ms": pa.int64(), "value": pa.string()},
        null_values=[],
        strings_can_be_null=False,
    )
    for block in _blocks(source, name):
        try:
            table = pacsv.read_csv(pa.BufferReader(block), read, convert_options=convert)
        except pa.ArrowException as error:
            raise _bad(name, error) from None
        yield _rows(table, name)


def _header(source: BinaryIO, name: str) -> list[str]:
    line = source.readline(CSV_BLOCK_BYTES).decode("utf-8-sig", errors="replace")
    names = next(csv.reader([line]), [])
    _need_columns(names, name)
    return names


def _blocks(source: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of rows, read here: Arrow's own reader of streams reads ahead on threads that outlive an error."""
    while block := source.read(CSV_BLOCK_BYTES):
        rest = source.readline(CSV_BLOCK_BYTES)
        if len(rest) == CSV_BLOCK_BYTES:
            raise InvalidRequest(f"{name}: a row longer than {CSV_BLOCK_BYTES} bytes", reason="bad_input")
        if block.strip() or rest.strip():
            yield block + rest


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
            f"{name}: no column {', '.join(missing)}; want {', '.join(COLUMNS)}, got {shown(', '.join(names[:10]))}",
            reason="bad_input",
        )


def _bad(name: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(f"{name}: {' '.join(str(error).split())}", reason="bad_input")

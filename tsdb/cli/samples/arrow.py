"""Parquet and CSV with the columns labels (JSON text), ts_ms, value. Arrow decodes them without Python objects."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsdb.cli.samples.rows import LabelTable, SampleRows, labels_of_json
from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_time

COLUMNS = ("labels", "ts_ms", "value")
_ROW = re.compile(r"Row #(\d+)")
CSV_BLOCK_BYTES = 16 << 20  # Bounds memory and the length of a row.


def read_parquet(source: BinaryIO, name: str) -> Iterator[SampleRows]:
    """The whole file as one batch, since the order by time needs all rows.

    Takes about 20 bytes a row, plus the size of the file when it comes through a pipe.
    """
    with _translated(name):
        with _native(source) as whole:
            schema = pq.read_schema(whole)
            _need_columns(schema.names, name)
            if pa.types.is_nested(schema.field("labels").type):
                raise InvalidRequest(
                    f"{name}: column labels is {schema.field('labels').type}; want text", reason="bad_input"
                )
            whole.seek(0)
            table = pq.ParquetFile(whole, read_dictionary=["labels"]).read(columns=list(COLUMNS))
        rows = _rows(table, name)
    yield rows


def _native(source: BinaryIO) -> pa.NativeFile:
    """The source without Python objects: after an error Arrow's threads may still read while the interpreter ends."""
    path = getattr(source, "name", None)
    if source.seekable() and isinstance(path, str):
        return pa.OSFile(path)
    # Parquet's index is at the end of the file, and a pipe cannot be read from its end.
    return pa.BufferReader(source.read())


def read_csv(source: BinaryIO, name: str) -> Iterator[SampleRows]:
    """Blocks of complete rows. Values may be NaN, +Inf, -Inf."""
    header = _header(source, name)
    read = pacsv.ReadOptions(column_names=header, use_threads=False)
    convert = pacsv.ConvertOptions(
        include_columns=list(COLUMNS),
        # Read as text and parsed here: Arrow refuses +Inf, reads NaN as null, and its errors lack the file's row.
        column_types=dict.fromkeys(COLUMNS, pa.string()),
        null_values=[],
        strings_can_be_null=False,
    )
    first_row = 1
    for block in _blocks(source, name):
        with _translated(name, first_row):
            table = pacsv.read_csv(pa.BufferReader(block), read, convert_options=convert)
            rows = _rows(table, name, first_row)
        yield rows
        first_row += len(table)


def _header(source: BinaryIO, name: str) -> list[str]:
    line = source.readline(CSV_BLOCK_BYTES).decode("utf-8-sig", errors="replace")
    with _translated(name):
        names = next(csv.reader([line]), [])
    _need_columns(names, name)
    return names


def _blocks(source: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of rows. Arrow's own stream reader is not used: its read-ahead threads survive an error."""
    while block := source.read(CSV_BLOCK_BYTES):
        rest = source.readline(CSV_BLOCK_BYTES)
        if len(rest) == CSV_BLOCK_BYTES:
            raise InvalidRequest(f"{name}: a row longer than {CSV_BLOCK_BYTES} bytes", reason="bad_input")
        if block.strip() or rest.strip():
            yield block + rest


def _rows(table: pa.Table, name: str, first_row: int = 1) -> SampleRows:
    """first_row: row number in the file of the table's first row."""
    for column in COLUMNS:
        if table[column].null_count:
            row = first_row + table[column].is_null().to_pylist().index(True)
            raise InvalidRequest(f"{name}, row {row}: no {column}", reason="bad_input")
    labels, codes = _labels(table["labels"], name, first_row)
    times, values = _times(table["ts_ms"], name, first_row), _values(table["value"], name, first_row)
    return SampleRows(labels, codes, times, values)


def _labels(column: pa.ChunkedArray, name: str, first_row: int) -> tuple[list[bytes], NDArray[np.int32]]:
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    else:
        column = column.cast(pa.string()).dictionary_encode()
    chunks = column.chunks
    if not chunks:
        return [], np.empty(0, np.int32)
    texts = chunks[0].dictionary.cast(pa.string()).to_pylist()
    # Two texts may have the same labels in another order or spacing.
    table = LabelTable()
    indices = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks])
    codes = np.empty(len(texts), np.int32)
    for number, text in enumerate(texts):
        try:
            codes[number] = table.code(labels_of_json(text, name))
        except InvalidRequest:
            row = first_row + int(np.argmax(indices == number))
            labels_of_json(text, f"{name}, row {row}")  # Raises the same error with the row.
            raise
    return table.labels, codes[indices]


def _times(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.int64]:
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        raise InvalidRequest(f"{name}: ts_ms is {kind}; want integers, ms since epoch UTC", reason="bad_input")
    if pa.types.is_timestamp(kind):
        with _translated(f"{name}: column ts_ms"):
            column = column.cast(pa.timestamp("ms", kind.tz))
    try:
        times: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    except pa.ArrowException:
        times = np.array(_parsed(column, parse_time, "ts_ms", name, first_row), np.int64)
    return times


def _values(column: pa.ChunkedArray, name: str, first_row: int) -> NDArray[np.float64]:
    if pa.types.is_string(column.type):
        column = pc.replace_substring_regex(column, pattern=r"^\+", replacement="")
    try:
        values: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        values = np.array(_parsed(column, _float, "value", name, first_row))
    return values


def _float(text: str) -> float:
    found: float = pa.scalar(text).cast(pa.float64()).as_py()
    return found


def _parsed(
    column: pa.ChunkedArray, parse: Callable[[str], Any], what: str, name: str, first_row: int
) -> list[int | float]:
    """Parse texts that Arrow cannot convert, one by one. Raises InvalidRequest (bad_input) with the row."""
    found = []
    for row, text in enumerate(column.to_pylist(), start=first_row):
        try:
            found.append(parse(str(text)))
        except InvalidRequest as error:
            raise InvalidRequest(f"{name}, row {row}: {what}: {error.message}", reason="bad_input") from None
        except ValueError:
            raise InvalidRequest(
                f"{name}, row {row}: {what}: not a number: {shown(str(text))}", reason="bad_input"
            ) from None
    return found


def _need_columns(names: list[str], name: str) -> None:
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise InvalidRequest(
            f"{name}: no column {', '.join(missing)}; want {', '.join(COLUMNS)}, got {shown(', '.join(names[:10]))}",
            reason="bad_input",
        )
    twice = [column for column in COLUMNS if names.count(column) > 1]
    if twice:
        raise InvalidRequest(f"{name}: column {', '.join(twice)} is there more than once", reason="bad_input")


@contextlib.contextmanager
def _translated(name: str, first_row: int = 1) -> Iterator[None]:
    """Translate errors of Arrow and Python into InvalidRequest (bad_input) with the file's name.

    first_row: row number in the file of the row that Arrow counts as 1.
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        text = _ROW.sub(lambda row: f"row {int(row[1]) + first_row - 1}", " ".join(str(error).split()))
        raise InvalidRequest(f"{name}: {text}", reason="bad_input") from None

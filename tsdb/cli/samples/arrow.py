"""Parquet and CSV with the columns labels (JSON text), ts_ms, value. Arrow decodes them without Python objects."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tsdb.cli.samples.rows import (
    SECONDS_FROM,
    SECONDS_TO,
    LabelTable,
    SampleRows,
    labels_of_json,
    labels_of_object,
)
from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import fine_time, parse_sample_time

COLUMNS = ("labels", "ts_ms", "value")
_ROW = re.compile(r"Row #(\d+)")
FLOAT_EXACT = 2.0**53  # Above this number a float cannot represent each whole ms.
NESTED_ROWS = 10_000  # Rows of labels that are Python objects at one time.
PARQUET_MAGIC = b"PAR1"
CSV_BLOCK_BYTES = 16 << 20  # The size bounds memory and the length of a row.


def read_parquet(source: BinaryIO, name: str, *, round_times: bool = False) -> Iterator[SampleRows]:
    """The whole file as one batch, since the order by time needs all rows.

    Takes about 20 bytes a row, plus the size of the file when it comes through a pipe.
    """
    with _translated(name):
        with _native(source) as whole:
            schema = pq.read_schema(whole)
            _need_columns(schema.names, name)
            kind = schema.field("labels").type
            if pa.types.is_list(kind) or pa.types.is_large_list(kind):
                raise InvalidRequest(
                    f"{name}: column labels is {kind}; want text, a map or a struct", reason="bad_input"
                )
            texts = [] if pa.types.is_nested(kind) else ["labels"]
            whole.seek(0)
            table = pq.ParquetFile(whole, read_dictionary=texts).read(columns=list(COLUMNS))
        rows = _rows(table, name, round_times)
    yield rows


def _native(source: BinaryIO) -> pa.NativeFile:
    """The source without Python objects: after an error Arrow's threads may still read while the interpreter ends."""
    path = getattr(source, "name", None)
    if source.seekable() and isinstance(path, str):
        return pa.OSFile(path)
    # Parquet's index is at the end of the file, and a pipe cannot be read from its end.
    return pa.BufferReader(source.read())


def read_csv(source: BinaryIO, name: str, *, round_times: bool = False) -> Iterator[SampleRows]:
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
            rows = _rows(table, name, round_times, first_row)
        yield rows
        first_row += len(table)


def _header(source: BinaryIO, name: str) -> list[str]:
    first = source.readline(CSV_BLOCK_BYTES)
    if first.startswith(PARQUET_MAGIC):
        raise InvalidRequest(f"{name} is Parquet, not CSV: give --format parquet", reason="bad_input")
    line = first.decode("utf-8-sig", errors="replace")
    with _translated(name):
        names = next(csv.reader([line]), [])
    _need_columns(names, name)
    return names


def _blocks(source: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of rows. Arrow's own stream reader is not used, because its read-ahead threads survive an error."""
    while block := source.read(CSV_BLOCK_BYTES):
        rest = source.readline(CSV_BLOCK_BYTES)
        if len(rest) == CSV_BLOCK_BYTES:
            raise InvalidRequest(f"{name}: a row longer than {CSV_BLOCK_BYTES} bytes", reason="bad_input")
        if block.strip() or rest.strip():
            yield block + rest


def _rows(table: pa.Table, name: str, round_times: bool, first_row: int = 1) -> SampleRows:
    """Rows of a table. first_row: row number in the file of the table's first row."""
    for column in COLUMNS:
        if table[column].null_count:
            row = first_row + table[column].is_null().to_pylist().index(True)
            raise InvalidRequest(f"{name}, row {row}: no {column}", reason="bad_input")
    of_column = _nested_labels if pa.types.is_nested(table["labels"].type) else _labels
    labels, codes = of_column(table["labels"], name, first_row)
    times, values = _times(table["ts_ms"], name, first_row, round_times), _values(table["value"], name, first_row)
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
            labels_of_json(text, f"{name}, row {row}")  # Raises the same error, with the row in it.
            raise
    return table.labels, codes[indices]


def _nested_labels(column: pa.ChunkedArray, name: str, first_row: int) -> tuple[list[bytes], NDArray[np.int32]]:
    """Labels of a column of maps, or of structs in which null means an absent label."""
    table, codes = LabelTable(), np.empty(len(column), np.int32)
    known: dict[tuple[tuple[str, str | None], ...], int] = {}
    row = 0
    for chunk in column.chunks:
        for start in range(0, len(chunk), NESTED_ROWS):
            for labels in chunk.slice(start, NESTED_ROWS).to_pylist():
                pairs = tuple(labels.items() if isinstance(labels, dict) else labels)
                code = known.get(pairs)
                if code is None:
                    given = {label: text for label, text in pairs if text is not None or not isinstance(labels, dict)}
                    place = f"{name}, row {first_row + row}"
                    if isinstance(labels, list) and len(given) < len(pairs):
                        raise InvalidRequest(f"{place}: a label is there twice", reason="bad_input")
                    code = known[pairs] = table.code(labels_of_object(given, place))
                codes[row] = code
                row += 1
    return table.labels, codes


def _times(column: pa.ChunkedArray, name: str, first_row: int, rounded: bool) -> NDArray[np.int64]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(column, name, first_row, rounded)
    if pa.types.is_floating(kind):
        return _whole(column.cast(pa.float64()).to_numpy(), name, first_row, rounded)
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        raise InvalidRequest(f"{name}: ts_ms is {kind}; want timestamps, or ms since epoch UTC", reason="bad_input")
    try:
        times: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    except pa.ArrowException:
        parse = partial(parse_sample_time, rounded=rounded)
        times = np.array(_parsed(column, parse, "ts_ms", name, first_row), np.int64)
    return times


def _moments(column: pa.ChunkedArray, name: str, first_row: int, rounded: bool) -> NDArray[np.int64]:
    """Timestamps of any unit, and dates as their first moment in UTC."""
    with _translated(f"{name}: column ts_ms"):
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"))
        given: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        divisor = {"us": 1_000, "ns": 1_000_000}.get(column.type.unit)
        if divisor is None:
            whole: NDArray[np.int64] = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64()).to_numpy()
            return whole
    times = given // divisor
    _refuse_fine(times * divisor != given, lambda at: column[at].cast(pa.string()).as_py(), name, first_row, rounded)
    return times


def _whole(given: NDArray[np.float64], name: str, first_row: int, rounded: bool) -> NDArray[np.int64]:
    """Floats of ms, as pandas writes a column of integers that had a gap."""
    if not (np.abs(given) < FLOAT_EXACT).all():
        row = first_row + int(np.argmax(~(np.abs(given) < FLOAT_EXACT)))
        raise InvalidRequest(f"{name}, row {row}: ts_ms is no time in ms", reason="bad_input")
    times = np.floor(given).astype(np.int64)
    seconds = (times >= SECONDS_FROM) & (times < SECONDS_TO)
    # Fractions of seconds are refused as seconds, by the caller.
    _refuse_fine((times != given) & ~seconds, lambda at: repr(float(given[at])), name, first_row, rounded)
    return times


def _refuse_fine(
    fine: NDArray[np.bool_], shown_at: Callable[[int], str], name: str, first_row: int, rounded: bool
) -> None:
    if not rounded and fine.any():
        at = int(np.argmax(fine))
        error = fine_time(shown_at(at))
        raise InvalidRequest(f"{name}, row {first_row + at}: ts_ms: {error.message}", reason="bad_input")


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

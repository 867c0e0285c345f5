"""Reads Parquet and CSV. Arrow decodes them without Python objects; the layout names their columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tsdb.cli.samples.columns import TableReader, detail_columns, translated
from tsdb.cli.samples.rows import SampleRows
from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.import_layout import CSV, METRIC_NAME, PARQUET, VALUE_NAMES, ColumnNames, ImportLayout, metric_of

COLUMNS = ("labels", "ts_ms", "value")
NO_NAMES = ColumnNames()
PARQUET_MAGIC = b"PAR1"
CSV_BLOCK_BYTES = 16 << 20  # The size bounds memory and the length of a row.
GUESS_ROWS = 1_000  # Rows from which the kind of a CSV column is guessed.
DELIMITERS = (",", ";", "\t")
# First number of each unit for times from 2001 on; below is what no unit fits.
_UNITS = ((10**18, "ns"), (10**15, "us"), (10**12, "ms"), (10**9, "s"))

_UNKNOWN = "a time is known by ts, time, timestamp, datetime or date, and values are numbers; "
_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")  # A metric that needs no quotes.

Remark = Callable[[str], None]


def read_parquet(
    source: BinaryIO, name: str, *, columns: ColumnNames = NO_NAMES, round_times: bool = False, remark: Remark
) -> Iterator[SampleRows]:
    """The whole file as one batch, since the order by time needs all rows.

    Takes about 20 bytes a row, plus the size of the file when it comes through a pipe.
    """
    with translated(name):
        with _native(source) as whole:
            schema = pq.read_schema(whole)
            chosen = _chosen(PARQUET, columns, name, schema.names, lambda: _number_columns(schema), remark)
            texts = _text_columns(schema, chosen, name)
            more = detail_columns(schema) if chosen.columns == COLUMNS else []
            whole.seek(0)
            table = pq.ParquetFile(whole, read_dictionary=texts).read(columns=[*chosen.columns, *more])
        reader = TableReader(_with_unit(chosen, columns, table), name, round_times)
        rows = reader.detailed_rows(table) if more else reader.rows(table)
    yield rows


def _text_columns(schema: pa.Schema, layout: ImportLayout, name: str) -> list[str]:
    """The columns that are read as dictionaries: labels that are text."""
    if not layout.labels:
        return []
    kind = schema.field(layout.labels).type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        raise InvalidRequest(
            f"{name}: column {layout.labels} is {kind}; want text, a map or a struct", reason="bad_input"
        )
    return [] if pa.types.is_nested(kind) else [layout.labels]


def _number_columns(schema: pa.Schema) -> list[str]:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]


def _native(source: BinaryIO) -> pa.NativeFile:
    """The source without Python objects: after an error Arrow's threads may still read while the interpreter ends."""
    path = getattr(source, "name", None)
    if source.seekable() and isinstance(path, str):
        return pa.OSFile(path)
    # Parquet's index is at the end of the file, and a pipe cannot be read from its end.
    return pa.BufferReader(source.read())


def read_csv(
    source: BinaryIO, name: str, *, columns: ColumnNames = NO_NAMES, round_times: bool = False, remark: Remark
) -> Iterator[SampleRows]:
    """Blocks of complete rows. Values may be NaN, +Inf, -Inf. The header tells whether , ; or a tab separates."""
    header, delimiter = _header(source, name)
    reader: TableReader | None = None
    first_row = 1
    for block in _blocks(source, name):
        with translated(name, first_row):
            if reader is None:
                chosen = _chosen(CSV, columns, name, header, partial(_csv_numbers, block, header, delimiter), remark)
                table = _table(block, header, delimiter, chosen.columns)
                reader = TableReader(_with_unit(chosen, columns, table), name, round_times)
            else:
                table = _table(block, header, delimiter, reader.layout.columns)
            rows = reader.rows(table, first_row)
        yield rows
        first_row += len(table)
    if reader is None:
        _chosen(CSV, columns, name, header, list, remark)  # Refuses the header of a file without rows.


def _table(block: bytes, header: list[str], delimiter: str, columns: Sequence[str]) -> pa.Table:
    """The columns of a block as text: Arrow refuses +Inf, reads NaN as null, and its errors lack the file's row."""
    return pacsv.read_csv(
        pa.BufferReader(block),
        pacsv.ReadOptions(column_names=header, use_threads=False),
        pacsv.ParseOptions(delimiter=delimiter),
        pacsv.ConvertOptions(
            include_columns=list(columns),
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _csv_numbers(block: bytes, header: list[str], delimiter: str) -> list[str]:
    """The columns whose first values are all numbers or empty."""
    table = _table(block, header, delimiter, header).slice(0, GUESS_ROWS)
    return [column for column in header if _is_number(table[column])]


def _is_number(column: pa.ChunkedArray) -> bool:
    given = column.filter(pc.not_equal(column, ""))
    if not len(given):
        return False
    try:
        pc.replace_substring_regex(given, pattern=r"^\+", replacement="").cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def _header(source: BinaryIO, name: str) -> tuple[list[str], str]:
    first = source.readline(CSV_BLOCK_BYTES)
    if first.startswith(PARQUET_MAGIC):
        raise InvalidRequest(f"{name} is Parquet, not CSV: give --format parquet", reason="bad_input")
    line = first.decode("utf-8-sig", errors="replace")
    delimiter = max(DELIMITERS, key=line.count)  # The comma where no separator is there.
    with translated(name):
        names = next(csv.reader([line], delimiter=delimiter), [])
    return names, delimiter


def _blocks(source: BinaryIO, name: str) -> Iterator[bytes]:
    """Blocks of rows. Arrow's own stream reader is not used, because its read-ahead threads survive an error."""
    while block := source.read(CSV_BLOCK_BYTES):
        rest = source.readline(CSV_BLOCK_BYTES)
        if len(rest) == CSV_BLOCK_BYTES:
            raise InvalidRequest(f"{name}: a row longer than {CSV_BLOCK_BYTES} bytes", reason="bad_input")
        if block.strip() or rest.strip():
            yield block + rest


def _chosen(
    form: str,
    given: ColumnNames,
    name: str,
    columns: Sequence[str],
    numbers: Callable[[], Sequence[str]],
    remark: Remark,
) -> ImportLayout:
    """The layout with the names that are given. Without them it is that of the columns labels, ts_ms and value, or a
    guess, which is remarked."""
    unknown = [column for column in given.columns if column not in columns]
    if unknown:
        has = shown(", ".join(columns[:10]))
        raise InvalidRequest(f"{name}: no column {', '.join(unknown)}; it has {has}", reason="bad_input")
    layout = given.layout(form)
    if given != NO_NAMES or not set(COLUMNS) <= set(columns):
        guess = given.guessed(form, columns, numbers()) if len(set(columns)) == len(columns) else None
        if guess is None and given == NO_NAMES:
            raise _missing(name, [column for column in COLUMNS if column not in columns], COLUMNS, columns, _UNKNOWN)
        layout = guess or layout
    missing = [column for column in layout.columns if column not in columns]
    if missing:
        raise _missing(name, missing, layout.columns, columns)
    twice = [column for column in layout.columns if columns.count(column) > 1]
    if twice:
        raise InvalidRequest(f"{name}: column {', '.join(twice)} is there more than once", reason="bad_input")
    if layout.columns != COLUMNS:
        layout = layout if layout.labels or layout.names_metrics else _named(layout, name)
        remark(f"{name}: {_described(layout)}")
    return layout


def _missing(
    name: str, missing: Sequence[str], wanted: Sequence[str], columns: Sequence[str], why: str = ""
) -> InvalidRequest:
    return InvalidRequest(
        f"{name}: no column {', '.join(missing)}; want {', '.join(wanted)}, got {shown(', '.join(columns[:10]))}: "
        f"{why}--time, --value, --metric and --labels name other columns",
        reason="bad_input",
    )


def _named(layout: ImportLayout, name: str) -> ImportLayout:
    """The layout with a metric's name: that of the column of values, or of the file where the column is `value`."""
    stem = "" if name == "-" else PurePath(name).stem
    metric = metric_of(stem if layout.value.lower() in VALUE_NAMES else layout.value)
    if not metric:
        raise InvalidRequest(f"{name}: nothing names the metric: give --name METRIC", reason="bad_input")
    return replace(layout, constants=(*layout.constants, (METRIC_NAME, metric)))


def _described(layout: ImportLayout) -> str:
    """The use of each column, so that a wrong guess is seen."""
    constants = dict(layout.constants)
    metric = f" as {constants[METRIC_NAME]}" if METRIC_NAME in constants else ""
    values = f"values {layout.value}{metric}"
    if layout.metrics:
        values = f"metrics {', '.join(map(selector_of, layout.metrics))}"
    labels = [column for _, column in layout.label_columns] + ([layout.labels] if layout.labels else [])
    return f"times {layout.time}, {values}" + (f", labels {', '.join(labels)}" if labels else "")


def selector_of(metric: str) -> str:
    """A metric as a query selects it: up, and {"Temp (C)"} for a name with other characters."""
    return metric if _PLAIN.fullmatch(metric) else f"{{{json.dumps(metric, ensure_ascii=False)}}}"


def _with_unit(layout: ImportLayout, given: ColumnNames, table: pa.Table) -> ImportLayout:
    """The layout with the unit of the first time of the table, where neither a name nor an option tells the unit."""
    if given.time_unit or layout.time == "ts_ms":
        return layout
    column = table[layout.time].slice(0, 1)
    try:
        first = abs(column.cast(pa.float64())[0].as_py() or 0) if len(column) else 0
    except pa.ArrowException:
        first = 0
    return replace(layout, time_unit=next((unit for least, unit in _UNITS if first >= least), "ms"))

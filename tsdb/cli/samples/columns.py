"""Converts the columns of a table, as Arrow has them, into rows: labels, times and values of an ImportLayout."""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
from tsdb.codec.histogram_rows import HISTOGRAM, read_details
from tsdb.model.details import SampleDetails
from tsdb.model.errors import CorruptData, InvalidRequest
from tsdb.model.import_layout import METRIC_NAME, ImportLayout
from tsdb.model.labels import canonical_labels, parse_labels
from tsdb.model.times import fine_time, parse_sample_time

_ROW = re.compile(r"Row #(\d+)")
FLOAT_EXACT = 2.0**53  # Above this number a float cannot represent each whole ms.
NESTED_ROWS = 10_000  # Rows of labels that are Python objects at one time.
HISTOGRAM_COLUMN = "histogram"
_PER_MS = {"us": 1_000, "ns": 1_000_000}
_SECOND_MS = 1_000
_FINE_S = 1e-3  # Rest of a ms that a float of seconds has by its own error, and no more.


@dataclass(frozen=True, slots=True)
class TableReader:
    """name: the file, for messages. round_times: times finer than a millisecond are rounded down, not refused."""

    layout: ImportLayout
    name: str
    round_times: bool

    def rows(self, table: pa.Table, first_row: int = 1) -> SampleRows:
        """Rows of a table with the columns of the layout. first_row: row number in the file of the table's first
        row."""
        layout = self.layout
        needed = (layout.time, *([layout.labels] if layout.labels else []), *([] if layout.metrics else [layout.value]))
        for column in needed:
            if table[column].null_count:
                row = first_row + table[column].is_null().to_pylist().index(True)
                raise InvalidRequest(f"{self.name}, row {row}: no {column}", reason="bad_input")
        labels, codes = self._labels(table, first_row)
        times = _times(table[layout.time], layout, self.name, first_row, self.round_times)
        if not layout.metrics:
            values = _values(table[layout.value], layout.value, self.name, first_row)
            return SampleRows(labels, codes, times, values)
        found = [self._metric(table[metric], metric, labels, codes, times, first_row) for metric in layout.metrics]
        return found[0] if len(found) == 1 else _joined(found)

    def detailed_rows(self, table: pa.Table) -> SampleRows:
        """Rows of a table that has also `detail_columns`. The value of a histogram is its sum."""
        details = _details(table, self.name)
        if details is None or details.histogram_of is None or details.histograms is None:
            return replace(self.rows(table), details=details)
        is_histogram = pa.array(details.histogram_of >= 0)
        given = table["value"].combine_chunks()
        if pc.any(pc.and_(is_histogram, given.is_valid())).as_py():
            row = 1 + int(np.argmax((details.histogram_of >= 0) & np.asarray(given.is_valid())))
            raise InvalidRequest(f"{self.name}, row {row}: a value and a histogram", reason="bad_input")
        sums = np.zeros(len(table))
        sums[details.histogram_of >= 0] = details.histograms.sums
        place = table.column_names.index("value")
        # A sum is read as it is: Arrow keeps the bits of a stale marker.
        filled = pc.if_else(is_histogram, pa.array(sums, from_pandas=False), given.cast(pa.float64()))
        return replace(self.rows(table.set_column(place, "value", filled)), details=details)

    def _labels(self, table: pa.Table, first_row: int) -> tuple[list[bytes], NDArray[np.int32]]:
        layout = self.layout
        labels, codes = [b""], np.zeros(len(table), np.int32)
        if layout.labels:
            column = table[layout.labels]
            of_column = _nested_labels if pa.types.is_nested(column.type) else _json_labels
            labels, codes = of_column(column, self.name, first_row)
            if not layout.label_columns and not layout.constants:
                return labels, codes
        own = {label: _texts(table[column]) for label, column in layout.label_columns}
        # One number for each combination of labels, made anew with each column, so that it stays small.
        combined = codes.astype(np.int64)
        for column in own.values():
            encoded = column.dictionary_encode().combine_chunks()
            numbers = encoded.indices.to_numpy(zero_copy_only=False)
            _, combined = np.unique(combined * max(len(encoded.dictionary), 1) + numbers, return_inverse=True)
        _, first, combined = np.unique(combined, return_index=True, return_inverse=True)
        distinct, made = LabelTable(), np.empty(len(first), np.int32)
        for number, row in enumerate(first.tolist()):
            given = dict(parse_labels(labels[codes[row]]))
            given |= {label: column[row].as_py() for label, column in own.items()} | dict(layout.constants)
            # An empty label is an absent one.
            made[number] = distinct.code(canonical_labels({label: text for label, text in given.items() if text}))
        return distinct.labels, made[combined]

    def _metric(
        self,
        column: pa.ChunkedArray,
        metric: str,
        labels: list[bytes],
        codes: NDArray[np.int32],
        times: NDArray[np.int64],
        first_row: int,
    ) -> SampleRows:
        """The samples of a metric's column; a null, and no text at all, is no sample."""
        there = pc.is_valid(column)
        if pa.types.is_string(column.type):
            there = pc.and_kleene(there, pc.not_equal(column, ""))
        rows = np.flatnonzero(pc.fill_null(there, False).to_numpy())
        values = _values(column.take(pa.array(rows)), metric, self.name, first_row, rows)
        named = [canonical_labels([*parse_labels(one), (METRIC_NAME, metric)]) for one in labels]
        return SampleRows(named, codes[rows], times[rows], values)


def detail_columns(schema: pa.Schema) -> list[str]:
    """The columns with native histograms and start timestamps, as the client and exports write them."""
    kinds = {name: schema.field(name).type for name in schema.names if schema.names.count(name) == 1}
    found = [HISTOGRAM_COLUMN] if pa.types.is_struct(kinds.get(HISTOGRAM_COLUMN, pa.null())) else []
    if kinds.get("start_ms") == pa.int64():
        return [*found, "start_ms"]
    return [*found, *(["start_ts"] if pa.types.is_timestamp(kinds.get("start_ts", pa.null())) else [])]


def _details(table: pa.Table, name: str) -> SampleDetails | None:
    """Raises InvalidRequest (bad_input) for a histogram without a meaning."""
    micros = pa.timestamp("us", "UTC")
    starts = pa.chunked_array([pa.nulls(len(table), micros)])
    if "start_ms" in table.column_names:
        starts = table["start_ms"].cast(pa.timestamp("ms", "UTC")).cast(micros)
    elif "start_ts" in table.column_names:
        starts = table["start_ts"].cast(micros)
    histograms = pa.chunked_array([pa.nulls(len(table), HISTOGRAM)])
    if HISTOGRAM_COLUMN in table.column_names:
        column = table[HISTOGRAM_COLUMN]
        lacks = {one.name for one in HISTOGRAM} - {one.name for one in column.type}
        if lacks:
            raise InvalidRequest(f"{name}: column histogram lacks {', '.join(sorted(lacks))}", reason="bad_input")
        histograms = column.cast(HISTOGRAM)
    try:
        return read_details(histograms, starts)
    except CorruptData as error:
        raise InvalidRequest(f"{name}: {error.message}", reason="bad_input") from error


def _joined(parts: list[SampleRows]) -> SampleRows:
    table = LabelTable()
    codes = [table.codes_of(part.labels)[part.codes] for part in parts]
    return SampleRows(
        table.labels,
        np.concatenate(codes),
        np.concatenate([part.ts_ms for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of labels as text; "" for null."""
    return pc.fill_null(column.cast(pa.string()), "")


def _json_labels(column: pa.ChunkedArray, name: str, first_row: int) -> tuple[list[bytes], NDArray[np.int32]]:
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


def _times(
    column: pa.ChunkedArray, layout: ImportLayout, name: str, first_row: int, rounded: bool
) -> NDArray[np.int64]:
    what, unit, kind = layout.time, layout.time_unit, column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(column, what, name, first_row, rounded)
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        raise InvalidRequest(f"{name}: {what} is {kind}; want timestamps, or ms since epoch UTC", reason="bad_input")
    if unit not in ("ms", "iso"):
        return _numbers(column, layout, name, first_row, rounded)
    if pa.types.is_floating(kind):
        return _whole(column.cast(pa.float64()).to_numpy(), what, name, first_row, rounded)
    try:
        times: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    except pa.ArrowException:
        parse = partial(parse_sample_time, rounded=rounded)
        times = np.array(_parsed(column, parse, what, name, first_row), np.int64)
    return times


def _numbers(
    column: pa.ChunkedArray, layout: ImportLayout, name: str, first_row: int, rounded: bool
) -> NDArray[np.int64]:
    """Times that are numbers of seconds, micro- or nanoseconds."""
    what, unit = layout.time, layout.time_unit
    if unit == "s":
        given = _values(column, what, name, first_row) * _SECOND_MS
        if not (np.abs(given) < FLOAT_EXACT).all():
            row = first_row + int(np.argmax(~(np.abs(given) < FLOAT_EXACT)))
            raise InvalidRequest(f"{name}, row {row}: {what} is no time in s", reason="bad_input")
        times = np.floor(given + _FINE_S).astype(np.int64)
        fine = np.abs(given - times) > _FINE_S
    else:
        try:
            whole: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        except pa.ArrowException as error:
            raise InvalidRequest(f"{name}: {what}: no whole numbers of {unit}: {error}", reason="bad_input") from None
        times = whole // _PER_MS[unit]
        fine = times * _PER_MS[unit] != whole
    _refuse_fine(fine, lambda at: f"{column[at].as_py()} {unit}", what, name, first_row, rounded)
    return times


def _moments(column: pa.ChunkedArray, what: str, name: str, first_row: int, rounded: bool) -> NDArray[np.int64]:
    """Timestamps of any unit, and dates as their first moment in UTC."""
    with translated(f"{name}: column {what}"):
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"))
        given: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        divisor = {"us": 1_000, "ns": 1_000_000}.get(column.type.unit)
        if divisor is None:
            whole: NDArray[np.int64] = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64()).to_numpy()
            return whole
    times = given // divisor
    _refuse_fine(
        times * divisor != given, lambda at: column[at].cast(pa.string()).as_py(), what, name, first_row, rounded
    )
    return times


def _whole(given: NDArray[np.float64], what: str, name: str, first_row: int, rounded: bool) -> NDArray[np.int64]:
    """Floats of ms, as pandas writes a column of integers that had a gap."""
    if not (np.abs(given) < FLOAT_EXACT).all():
        row = first_row + int(np.argmax(~(np.abs(given) < FLOAT_EXACT)))
        raise InvalidRequest(f"{name}, row {row}: {what} is no time in ms", reason="bad_input")
    times = np.floor(given).astype(np.int64)
    seconds = (times >= SECONDS_FROM) & (times < SECONDS_TO)
    # Fractions of seconds are refused as seconds, by the caller.
    _refuse_fine((times != given) & ~seconds, lambda at: repr(float(given[at])), what, name, first_row, rounded)
    return times


def _refuse_fine(
    fine: NDArray[np.bool_], shown_at: Callable[[int], str], what: str, name: str, first_row: int, rounded: bool
) -> None:
    if not rounded and fine.any():
        at = int(np.argmax(fine))
        error = fine_time(shown_at(at))
        raise InvalidRequest(f"{name}, row {first_row + at}: {what}: {error.message}", reason="bad_input")


def _values(
    column: pa.ChunkedArray, what: str, name: str, first_row: int, rows: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """rows: the rows of the table that the column has; by default all."""
    if pa.types.is_string(column.type):
        column = pc.replace_substring_regex(column, pattern=r"^\+", replacement="")
    try:
        values: NDArray[np.float64] = column.cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        values = np.array(_parsed(column, _float, what, name, first_row, rows))
    return values


def _float(text: str) -> float:
    found: float = pa.scalar(text).cast(pa.float64()).as_py()
    return found


def _parsed(
    column: pa.ChunkedArray,
    parse: Callable[[str], Any],
    what: str,
    name: str,
    first_row: int,
    rows: NDArray[np.int64] | None = None,
) -> list[int | float]:
    """Parse texts that Arrow cannot convert, one by one. Raises InvalidRequest (bad_input) with the row."""
    found = []
    for at, text in enumerate(column.to_pylist()):
        row = first_row + (at if rows is None else int(rows[at]))
        try:
            found.append(parse(str(text)))
        except InvalidRequest as error:
            raise InvalidRequest(f"{name}, row {row}: {what}: {error.message}", reason="bad_input") from None
        except ValueError:
            raise InvalidRequest(
                f"{name}, row {row}: {what}: not a number: {shown(str(text))}", reason="bad_input"
            ) from None
    return found


@contextlib.contextmanager
def translated(name: str, first_row: int = 1) -> Iterator[None]:
    """Translate errors of Arrow and Python into InvalidRequest (bad_input) with the file's name.

    first_row: row number in the file of the row that Arrow counts as 1.
    """
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        text = _ROW.sub(lambda row: f"row {int(row[1]) + first_row - 1}", " ".join(str(error).split()))
        raise InvalidRequest(f"{name}: {text}", reason="bad_input") from None

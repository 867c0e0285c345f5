"""Reads JSON lines and the Prometheus text exposition, line by line, in batches of bounded memory."""

from __future__ import annotations

import codecs
import io
import math
from array import array
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from tsdb.cli.samples.exposition import END, TAIL_BYTES, Dialect, ExpositionParser, dialect_of_tail
from tsdb.cli.samples.exposition import LINE_BYTES_MAX as EXPOSED_BYTES_MAX
from tsdb.cli.samples.rows import LabelTable, SampleRows, labels_of_object, parse_json
from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_sample_time

BATCH_ROWS = 1_000_000  # Rows of a batch are sent in order of time. A row takes 20 bytes.
LINE_BYTES_MAX = 1 << 20  # Bytes of one of the JSON lines.

ROW_KEYS = ("labels", "ts_ms", "value")

_SPECIAL = {"NaN": float("nan"), "+Inf": float("inf"), "Inf": float("inf"), "-Inf": float("-inf")}
_FLOAT_EXACT = 2.0**53  # Above this number a float cannot represent each whole ms.
_INT64_MAX = np.iinfo(np.int64).max

Row = tuple[bytes, int, float]  # Canonical labels, ts_ms and value.


def read_jsonl(source: BinaryIO, name: str, *, round_times: bool = False) -> Iterator[SampleRows]:
    """Rows of JSON lines {"labels": {...}, "ts_ms": 1, "value": 2.5}; a value may be "NaN", "+Inf" or "-Inf".

    round_times: times finer than a millisecond are rounded down, not refused.
    """
    canonical: dict[tuple[tuple[str, str], ...], bytes] = {}

    def parse(line: str, place: str) -> Row:
        row = _json_row(line, place)
        key = _key(row["labels"])
        found = canonical.get(key) if key else None
        if found is None:
            found = labels_of_object(row["labels"], place)
            if key:
                canonical[key] = found
        return found, _ts_ms(row["ts_ms"], place, round_times), _value(row["value"], place)

    return _batches(source, name, parse)


def read_prom(
    source: BinaryIO,
    name: str,
    *,
    now_ms: int,
    dialect: Dialect = Dialect.TEXT,
    remark: Callable[[str], None] = lambda text: None,
) -> Iterator[SampleRows]:
    """Rows of an exposition. A sample without a time gets now_ms. Names stay unchanged.

    Refuses OpenMetrics without its end marker, and text with times that ends with the marker of OpenMetrics. remark:
    called with a message about dropped data.
    """
    parser = ExpositionParser()
    ended = timed = False

    def parse(line: str, place: str) -> Row | None:
        nonlocal ended, timed
        if ended:
            raise InvalidRequest(f"{place}: a line after {END}", reason="bad_input")
        if line.rstrip() == END:
            if timed and dialect is Dialect.TEXT:
                raise InvalidRequest(
                    f"{place}: {END} ends OpenMetrics, whose times are in seconds: give --format openmetrics",
                    reason="bad_input",
                )
            ended = True
        sample = parser.parse(line, place, dialect)
        if sample is None:
            return None
        timed |= sample.ts_ms is not None
        return sample.canonical, now_ms if sample.ts_ms is None else sample.ts_ms, sample.value

    def at_end() -> None:
        if dialect is Dialect.OPENMETRICS and not ended:
            raise InvalidRequest(f"{name}: no {END} at its end: the file was cut short", reason="bad_input")
        if parser.exemplars:
            remark(f"{name}: {parser.exemplars} exemplars are not kept")

    return _batches(source, name, parse, line_bytes_max=EXPOSED_BYTES_MAX, at_end=at_end)


def file_dialect(source: BinaryIO) -> Dialect:
    """The dialect of an exposition, from the end of the file. A pipe counts as text, because its end cannot be read
    first."""
    if not source.seekable():
        return Dialect.TEXT
    start = source.tell()
    end = source.seek(0, io.SEEK_END)
    source.seek(max(start, end - TAIL_BYTES))
    tail = source.read(TAIL_BYTES)
    source.seek(start)
    return dialect_of_tail(tail)


def _batches(
    source: BinaryIO,
    name: str,
    parse: Callable[[str, str], Row | None],
    *,
    line_bytes_max: int = LINE_BYTES_MAX,
    at_end: Callable[[], None] = lambda: None,
) -> Iterator[SampleRows]:
    table, codes, times, values = LabelTable(), array("i"), array("q"), array("d")
    for number, line in enumerate(iter(lambda: source.readline(line_bytes_max + 1), b""), start=1):
        place = f"{name}, line {number}"
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)  # Otherwise the mark would become a part of the first name.
        row = parse(_text(line, place, line_bytes_max), place) if line.strip() else None
        if row is None:
            continue
        codes.append(table.code(row[0]))
        times.append(row[1])
        values.append(row[2])
        if len(times) == BATCH_ROWS:
            yield _rows(table, codes, times, values)
            table, codes, times, values = LabelTable(), array("i"), array("q"), array("d")
    at_end()
    if times:
        yield _rows(table, codes, times, values)


def _rows(table: LabelTable, codes: array[int], times: array[int], values: array[float]) -> SampleRows:
    return SampleRows(
        table.labels, np.frombuffer(codes, np.int32), np.frombuffer(times, np.int64), np.frombuffer(values, np.float64)
    )


def _text(line: bytes, place: str, bytes_max: int) -> str:
    if len(line) > bytes_max:
        raise InvalidRequest(f"{place}: longer than {bytes_max} bytes", reason="bad_input")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{place}: not UTF-8: {error}", reason="bad_input") from None


def _json_row(line: str, place: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise InvalidRequest(f"{place}: not JSON: {error}", reason="bad_input") from None
    missing = [key for key in ROW_KEYS if not isinstance(row, dict) or key not in row]
    if missing:
        raise InvalidRequest(f"{place}: no {', '.join(missing)}; got {shown(line.strip())}", reason="bad_input")
    unknown = [key for key in row if key not in ROW_KEYS]
    if unknown:
        raise InvalidRequest(
            f"{place}: {shown(', '.join(unknown))} is not known; want {', '.join(ROW_KEYS)}", reason="bad_input"
        )
    checked: dict[str, Any] = row
    return checked


def _key(labels: Any) -> tuple[tuple[str, str], ...]:
    """A cheap cache key that equal labels share; () for malformed labels."""
    if not isinstance(labels, dict) or not all(type(value) is str for value in labels.values()):
        return ()
    return tuple(labels.items())


def _ts_ms(value: Any, place: str, rounded: bool) -> int:
    if type(value) is float and abs(value) < _FLOAT_EXACT:
        value = int(value) if value.is_integer() else repr(value)
    if isinstance(value, str):
        try:
            return parse_sample_time(value, rounded=rounded)
        except InvalidRequest as error:
            raise InvalidRequest(f"{place}: ts_ms: {error.message}", reason="bad_input") from None
    if type(value) is not int or not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise InvalidRequest(f"{place}: ts_ms must be an integer of 64 bits; got {value!r}", reason="bad_input")
    return value


def _value(value: Any, place: str) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if type(value) not in (int, float):
        raise InvalidRequest(
            f'{place}: value must be a number, "NaN", "+Inf" or "-Inf"; got {value!r}', reason="bad_input"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):  # The number is too large, such as 1e400. Infinities are written as text.
        raise InvalidRequest(f'{place}: value is beyond float64; infinity is written "+Inf"', reason="bad_input")
    return number

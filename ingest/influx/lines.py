"""Lines: decodes one request of line protocol to rows, and lists the refused lines with the reasons.

A line is stored whole or refused whole. A field with a number or a boolean is a row; strings are counted, for a sample
is a number.

The unit of a request's timestamps has the spellings of InfluxDB 1 and 2.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ingest.influx import line_kernels as kernels
from ingest.rows import Rows
from tsdb.model import defaults
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits

LISTED_MAX = 16  # Most refused lines with a text. Texts of all lines could cost more than the write.
SHOWN_BYTES_MAX = 80
ROW_BYTES = 48  # Bytes of the arrays of one row, its entry in `Rows` included.
REASONS: Mapping[int, tuple[str, str]] = {
    kernels.MISSING_MEASUREMENT: ("missing_measurement", "want a measurement"),
    kernels.BAD_TAG: ("bad_tag", "want tag=value; commas, spaces and equals signs in tags need a backslash"),
    kernels.DUPLICATE_TAG: ("duplicate_tag", "a tag twice, by its name as a label"),
    kernels.TOO_MANY_TAGS: ("too_many_tags", "more tags than labels_max allows"),
    kernels.LABELS_TOO_LONG: ("labels_too_long", "measurement or tags are longer than labels_bytes_max allows"),
    kernels.MISSING_FIELDS: ("missing_fields", "want a field"),
    kernels.BAD_FIELD: ("bad_field", "want field=value"),
    kernels.NUMBER_MALFORMED: ("bad_number", "want a number, a boolean or a quoted string"),
    kernels.NUMBER_OUT_OF_RANGE: ("number_out_of_range", "the number does not fit its type"),
    kernels.UNCLOSED_STRING: ("unclosed_string", "a string without its closing quote"),
    kernels.BAD_TIMESTAMP: ("bad_timestamp", "want an integer as timestamp and nothing after it"),
    kernels.TIMESTAMP_OUT_OF_RANGE: ("timestamp_out_of_range", "the timestamp does not fit 64 bits"),
    kernels.NOT_UTF8: ("not_utf8", "not UTF-8"),
    kernels.LINE_TOO_LONG: ("line_too_long", f"the line is longer than {kernels.LINE_BYTES_MAX} bytes"),
}


@dataclass(frozen=True, slots=True)
class LineRules:
    """names: `sanitised` makes names that Prometheus's data model always allowed, `utf8` keeps them as they come.
    value_field: whether a field `value` is a part of the metric's name. database_label: the label for a request's
    database or bucket; empty: no label. samples_max, label_bytes_max: limits of one request. Labels that several
    samples share count for each of them.
    """

    labels: LabelLimits = field(default_factory=LabelLimits)
    names: Literal["sanitised", "utf8"] = "sanitised"
    value_field: Literal["kept", "dropped"] = "kept"
    database_label: str = ""
    samples_max: int = defaults.REQUEST_SAMPLES_MAX
    label_bytes_max: int = 16 << 20


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """line: number of the line in the request, from 1. message: names the line, the byte in it, and its beginning."""

    line: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class LineReport:
    """lines: int64 (rows,), the line of each row. refused: number of lines by reason; the first of them are in
    `listed`. strings: number of skipped fields."""

    lines: NDArray[np.int64]
    refused: Mapping[str, int]
    listed: Sequence[RefusedLine]
    strings: int


@dataclass(frozen=True, slots=True)
class Lines:
    """Decoded lines of one request. rows: each has one sample."""

    rows: Rows
    report: LineReport


def decode_lines(
    body: bytes | bytearray,
    precision: Precision,
    now_ms: int,
    rules: LineRules,
    *,
    database: str = "",
    reserve: Callable[[int], None] = lambda _size: None,
) -> Lines:
    """Decode one request; now_ms is the time of lines without a timestamp. `reserve` is called with a number of bytes
    before they are allocated.

    Raises InvalidRequest (too_many_samples, request_too_large) when all samples together are over a limit.
    """
    data = np.frombuffer(body, np.uint8)
    out = _Output(body, rules, reserve)
    settings = _settings(body, precision, now_ms, rules)
    extra, extra_name = _extra_label(rules, database)
    scratch = rules.labels.total_bytes_max
    prefix, tags = np.empty(kernels.NAME_BYTES + scratch, np.uint8), np.empty(scratch, np.uint8)
    prefix[: kernels.NAME_BYTES] = np.frombuffer(b"__name__\xff", np.uint8)
    names = np.empty(2 * rules.labels.labels_max, np.int64)
    while True:
        result = kernels.decode_lines_kernel(
            data, settings, extra, extra_name, prefix, tags, names, out.labels, out.label_ends, out.ts_ms, out.bits,
            out.undecided, out.lines, out.refused, out.listed, out.state,
        )  # fmt: skip
        if result == kernels.DONE:
            return out.finish(body)
        out.enlarge(result)


class _Output:
    """The arrays that the kernel fills. A row needs an equals sign, so their length bounds the rows."""

    def __init__(self, body: bytes | bytearray, rules: LineRules, reserve: Callable[[int], None]) -> None:
        self._rules = rules
        self._reserve = reserve
        rows = min(body.count(b"="), rules.samples_max)
        size = min(4 * len(body) + 1024, rules.label_bytes_max)
        reserve(size + ROW_BYTES * rows)
        self.labels = np.empty(size, np.uint8)
        self.label_ends = np.empty(rows, np.int64)
        self.ts_ms = np.empty(rows, np.int64)
        self.bits = np.empty(rows, np.uint64)
        self.undecided = np.empty(rows, np.int64)
        self.lines = np.empty(rows, np.int64)
        self.refused = np.zeros(kernels.REASONS, np.int64)
        self.listed = np.zeros((LISTED_MAX, 4), np.int64)
        self.state = np.zeros(kernels.STATES, np.int64)
        self.state[kernels.LINE] = 1
        if body.startswith(codecs.BOM_UTF8):
            # Some editors and Windows programs write it; it would become a part of the first name.
            self.state[kernels.POSITION] = len(codecs.BOM_UTF8)

    def enlarge(self, result: int) -> None:
        """Enlarge the output for more labels. Raises InvalidRequest at a limit of the request."""
        limits = self._rules
        if result == kernels.ROWS_FULL:
            raise InvalidRequest(
                f"the request has more than {limits.samples_max} samples (samples_max): split it",
                reason="too_many_samples",
                limit=limits.samples_max,
            )
        if len(self.labels) >= limits.label_bytes_max:
            raise InvalidRequest(
                f"the labels of all samples have more than {limits.label_bytes_max} bytes "
                f"(request_bytes_max), reached in line {self.state[kernels.LINE]}: split the request",
                reason="request_too_large",
                limit=limits.label_bytes_max,
            )
        size = min(4 * len(self.labels), limits.label_bytes_max)
        self._reserve(size - len(self.labels))
        larger = np.empty(size, np.uint8)
        used = int(self.state[kernels.LABELS])
        larger[:used] = self.labels[:used]
        self.labels = larger

    def finish(self, body: bytes | bytearray) -> Lines:
        """The rows, with the numbers that the kernel leaves to float()."""
        rows = int(self.state[kernels.ROWS])
        values = self.bits[:rows].view(np.float64)
        undecided = self.undecided[:rows]
        for row in np.flatnonzero(undecided >= 0).tolist():
            values[row] = _number(body, int(undecided[row]))
        starts = np.zeros(rows + 1, np.int64)
        starts[1:] = self.label_ends[:rows]
        refused = {REASONS[code][0]: int(self.refused[code]) for code in np.flatnonzero(self.refused).tolist()}
        count = int(self.state[kernels.LISTED])
        listed = [_refused_line(body, *map(int, entry)) for entry in self.listed[:count]]
        return Lines(
            Rows(self.labels[: starts[-1]], starts, np.arange(rows + 1), self.ts_ms[:rows], values),
            LineReport(self.lines[:rows], refused, listed, int(self.state[kernels.STRINGS])),
        )


def _settings(body: bytes | bytearray, precision: Precision, now_ms: int, rules: LineRules) -> NDArray[np.int64]:
    settings = np.zeros(kernels.RULES, np.int64)
    settings[kernels.NOW_MS] = now_ms
    settings[kernels.MULTIPLY], settings[kernels.DIVIDE] = precision.multiply, precision.divide
    settings[kernels.TAGS_MAX] = rules.labels.labels_max - 1  # One label is the name.
    settings[kernels.SANITISED] = rules.names == "sanitised"
    settings[kernels.VALUE_DROPPED] = rules.value_field == "dropped"
    settings[kernels.CHECK_UTF8] = not _is_utf8(body)
    return settings


def _is_utf8(body: bytes | bytearray) -> bool:
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _extra_label(rules: LineRules, database: str) -> tuple[NDArray[np.uint8], int]:
    """(name 0xFF value of the label for the database, bytes of its name); both are empty when there is no such
    label."""
    if not rules.database_label or not database:
        return np.empty(0, np.uint8), 0
    name = rules.database_label.encode()
    return np.frombuffer(name + b"\xff" + database.encode(errors="replace"), np.uint8), len(name)


def _number(body: bytes | bytearray, start: int) -> float:
    """The number that begins at `start`. Its form is checked: it ends before the first other byte."""
    end = start
    while end < len(body) and body[end] in b"0123456789+-.eE":
        end += 1
    return float(body[start:end])


def _refused_line(body: bytes | bytearray, line: int, code: int, start: int, at: int) -> RefusedLine:
    reason, want = REASONS[code]
    shown = body[start : start + SHOWN_BYTES_MAX].split(b"\n")[0].rstrip(b"\r").decode(errors="replace")
    return RefusedLine(line, reason, f"line {line}, byte {at - start + 1}: {want}: {shown!r}")


@dataclass(frozen=True, slots=True)
class Precision:
    """A timestamp t is floor(t * multiply / divide) ms since the epoch."""

    multiply: int
    divide: int


_NS, _US, _MS = Precision(1, 1_000_000), Precision(1, 1000), Precision(1, 1)


_UNITS = {
    "": _NS,
    "n": _NS,
    "ns": _NS,
    "u": _US,
    "us": _US,
    "\u00b5": _US,
    "\u00b5s": _US,
    "ms": _MS,
    "s": Precision(1000, 1),
    "m": Precision(60_000, 1),
    "h": Precision(3_600_000, 1),
}


def parse_precision(text: str) -> Precision:
    """The unit that a request names; nanoseconds when it names none. Raises InvalidRequest (bad_precision)."""
    if text not in _UNITS:
        raise InvalidRequest(
            f"precision is {text[:20]!r}; allowed are ns, n, us, u, ms, s, m, h, or none for ns", reason="bad_precision"
        )
    return _UNITS[text]

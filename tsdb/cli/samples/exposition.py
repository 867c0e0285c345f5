"""Parses one line of the Prometheus text exposition, or of OpenMetrics.

A regular expression without backtracking splits a line, so its time is linear in the line's length. prometheus_client
then parses the labels. Every brace in them is inside quotes, because its parser does not stop at a bare one.
prometheus_client's parsers of whole texts are not used: they rename counters by their TYPE, read the value of an
exemplar as a time, and can take minutes for one line. Series repeat from scrape to scrape, so the labels of a line are
parsed once.

Labels are stored as Prometheus stores them: `le` under TYPE histogram and `quantile` under TYPE summary as OpenMetrics
writes floats ("1.0"), and a label of a page that has the name of a label of its target with the prefix `exported_`.

An exposition has one of two formats, which differ in the unit of times and in the end of a page.
"""

from __future__ import annotations

import enum
import math
import re
import struct
from dataclasses import dataclass
from decimal import Decimal

from prometheus_client.parser import parse_labels

from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import HistogramColumns
from tsdb.model.labels import canonical_labels
from tsdb.promql.syntax.numbers import shown_g

END = "# EOF"  # The last line of an OpenMetrics page. A page without it was truncated.
CONTENT_TYPE = "application/openmetrics-text"
_END_BYTES = b"# EOF"
TAIL_BYTES = 64  # Enough for the end marker and some line breaks after it.

_MILLISECONDS = re.compile(r"-?\d{1,18}", re.ASCII)
_SECONDS = re.compile(r"[+-]?\d{1,15}(\.\d{0,18})?([eE][+-]?\d{1,2})?", re.ASCII)
_MS_MAX = 10**18

SERIES_REMEMBERED_MAX = 200_000  # Series of one file or target, which take some 100 MB with twenty labels each.
LINE_BYTES_MAX = 64 << 10  # Eight times the gateway's limit of labels. The worst such line takes 70 ms.

# Possessive quantifiers (`*+`, `++`, `?+`) prevent backtracking. A group that can fail after it has begun is not
# possessive: Python before 3.11.5 then goes on behind what the group had read.
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LABELS = rf'\{{((?:[^"{{}}\\]++|{_QUOTED})*+)\}}'
_SPACE = r"[ \t]"
_LINE = re.compile(
    rf"\s*+([^\s{{}}#\"]*+){_SPACE}*+(?:{_LABELS})?{_SPACE}*+"
    rf"([^\s{{}}#\"]++)(?:{_SPACE}++([^\s{{}}#\"]++))?"
    rf"(?:{_SPACE}++(\#){_SPACE}*+{_LABELS}{_SPACE}*+([^\s{{}}#\"]++)(?:{_SPACE}++([^\s{{}}#\"]++))?)?\s*+",
    re.DOTALL | re.ASCII,
)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_TYPE = re.compile(r"#[ \t]*TYPE[ \t]+(?:[a-zA-Z_:][a-zA-Z0-9_:]*|\"(?:[^\"\\]++|\\.)*+\")[ \t](.*)", re.ASCII)
_TEXT_PAIR = (
    rf"[ \t]*+(?:[a-zA-Z_][a-zA-Z0-9_]*+[ \t]*+=[ \t]*+{_QUOTED}|{_QUOTED}(?:[ \t]*+=[ \t]*+{_QUOTED})?)[ \t]*+"
)
_TEXT_LABELS = re.compile(rf"(?:{_TEXT_PAIR}(?:,{_TEXT_PAIR})*,?+)?[ \t]*+", re.DOTALL | re.ASCII)
# A line of a scraped page of OpenMetrics: single spaces, none among the labels.
_PAIR = rf"(?:[a-zA-Z_][a-zA-Z0-9_]*+|{_QUOTED})={_QUOTED}"
_OPEN_LABELS = rf"\{{(?:(?:{_PAIR}|{_QUOTED})(?:,{_PAIR})*,?+)?\}}"
_OPEN_LINE = re.compile(
    rf"(?:[a-zA-Z_:][a-zA-Z0-9_:]*+)?(?:{_OPEN_LABELS})? [^ \t]++(?: [^ \t#]++)?"
    rf"(?: \# {_OPEN_LABELS} [^ \t]++(?: [^ \t]++)?)?",
    re.DOTALL | re.ASCII,
)
_OPEN_COMMENT = re.compile(r"# (?:(?:HELP|TYPE|UNIT) .*|EOF)", re.DOTALL)
_TEXT_TYPES = frozenset(("counter", "gauge", "histogram", "summary", "untyped"))
_OPEN_TYPES = frozenset(("counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset", "unknown"))
_FLOAT_LABELS = {"histogram": "le", "summary": "quantile"}
_BOM = "\ufeff"
_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]  # The NaN that Prometheus stores.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE | re.ASCII)


class Dialect(enum.Enum):
    """TEXT: Prometheus text, with times in integer ms. OPENMETRICS: times in seconds, and `# EOF` at the end."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"

    def ts_ms(self, text: str, place: str) -> int:
        """The time of a sample in whole ms, rounded down. Raises InvalidRequest with the place."""
        if self is Dialect.TEXT:
            if _MILLISECONDS.fullmatch(text):
                return int(text)
            raise InvalidRequest(f"{place}: not a time in integer ms: {shown(text)}", reason="bad_input")
        # Decimal, since seconds as a float are sometimes off by a millisecond.
        ms = Decimal(text) * 1000 if _SECONDS.fullmatch(text) else None
        if ms is None or abs(ms) > _MS_MAX:
            raise InvalidRequest(f"{place}: not a time in seconds: {shown(text)}", reason="bad_input")
        return math.floor(ms)


def dialect_of_page(content_type: str, page: bytes) -> Dialect:
    """The dialect of a whole page, from its content type or, without one, from its last line."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind:
        return Dialect.OPENMETRICS if kind == CONTENT_TYPE else Dialect.TEXT
    return dialect_of_tail(page[-TAIL_BYTES:])


def dialect_of_tail(tail: bytes) -> Dialect:
    """The dialect of a page or file, from its last bytes."""
    return Dialect.OPENMETRICS if tail.rstrip().split(b"\n")[-1] == _END_BYTES else Dialect.TEXT


@dataclass(frozen=True, slots=True)
class ExposedExemplar:
    """The exemplar of a line. labels: canonical; ts_ms: None for one without a time."""

    labels: bytes
    ts_ms: int | None
    value: float


@dataclass(frozen=True, slots=True)
class ExposedSample:
    """One sample; ts_ms is None for a line without a time.

    start_ms: when its counter began, 0 where the page does not say it. histogram: columns with one native histogram,
    whose sum is `value`.
    """

    canonical: bytes
    ts_ms: int | None
    value: float
    exemplars: tuple[ExposedExemplar, ...] = ()
    start_ms: int = 0
    histogram: HistogramColumns | None = None


class ExpositionParser:
    """Parses lines, in the order of their page. target: labels added to every series.

    honor_labels: a label of the line wins over that of the target; otherwise it is kept as exported_NAME, with the
    prefix repeated while that name is taken.
    as_scraped: refuse what Prometheus refuses in a scraped page: names beyond [a-zA-Z_:][a-zA-Z0-9_:]* without quotes,
    unknown types, exemplars outside OpenMetrics, and blanks that OpenMetrics does not have.
    exemplars: number of lines so far with an exemplar. as_scraped: samples come with theirs.
    """

    def __init__(
        self, target: dict[str, str] | None = None, *, honor_labels: bool = False, as_scraped: bool = False
    ) -> None:
        self._target = target or {}
        self._honor_labels = honor_labels
        self._as_scraped = as_scraped
        self._float_label: str | None = None  # The label that holds a number, by the last TYPE.
        self._known: dict[tuple[str, str | None, str | None], bytes] = {}
        self.exemplars = 0

    def begin_page(self) -> None:
        """Forget the types of the last page."""
        self._float_label = None

    def parse(self, line: str, place: str, dialect: Dialect = Dialect.TEXT) -> ExposedSample | None:
        """The sample of a line; None for a comment or an empty line. Raises InvalidRequest, which names `place`."""
        stripped = line.strip()
        if self._as_scraped:
            _check_scraped(line.removesuffix("\n"), stripped, place, dialect)
        if not stripped or stripped.startswith("#"):
            self._take_type(stripped, line, place, dialect)
            return None
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidRequest(f"{place}: not a sample: {shown(stripped)}", reason="bad_input")
        name, labels, number, time, mark, exemplar_labels, exemplar_number, exemplar_time = match.groups()
        key = (name, labels, self._float_label)
        canonical = self._known.get(key)
        if canonical is None:
            if len(self._known) >= SERIES_REMEMBERED_MAX:
                self._known.clear()
            canonical = self._known[key] = self._labels(name, labels, place)
        ts_ms = None if time is None else dialect.ts_ms(time, place)
        exemplars: tuple[ExposedExemplar, ...] = ()
        if mark is not None:
            self.exemplars += 1
            if self._as_scraped:
                exemplar_ms = None if exemplar_time is None else dialect.ts_ms(exemplar_time, place)
                own = _pairs(exemplar_labels, place)
                exemplars = (ExposedExemplar(canonical_labels(own), exemplar_ms, _number(exemplar_number, place)),)
        return ExposedSample(canonical, ts_ms, _number(number, place), exemplars)

    def _take_type(self, comment: str, line: str, place: str, dialect: Dialect) -> None:
        match = _TYPE.fullmatch(comment)
        if match is None:
            return
        kind = match[1] if not self._as_scraped else line.removesuffix("\n")[-len(match[1]) :]
        if self._as_scraped and kind not in (_OPEN_TYPES if dialect is Dialect.OPENMETRICS else _TEXT_TYPES):
            raise InvalidRequest(f"{place}: not a type: {shown(kind)}", reason="bad_input")
        self._float_label = _FLOAT_LABELS.get(kind)

    def _labels(self, name: str, text: str | None, place: str) -> bytes:
        labels = _pairs(text or "", place)
        if name and "__name__" in labels:
            raise InvalidRequest(f"{place}: the metric has two names", reason="bad_input")
        if name:
            labels["__name__"] = name
        if not labels.get("__name__"):
            raise InvalidRequest(f"{place}: no metric name", reason="bad_input")
        if self._as_scraped and text and not _TEXT_LABELS.fullmatch(text):
            raise InvalidRequest(f"{place}: not labels: {shown('{' + text + '}')}", reason="bad_input")
        if self._as_scraped and name and not _NAME.fullmatch(name):
            raise InvalidRequest(f"{place}: not a metric name: {shown(name)}; others are quoted", reason="bad_input")
        if self._float_label in labels:
            labels[self._float_label] = float_text(labels[self._float_label])
        return self.of_target(labels)

    def of_target(self, labels: dict[str, str]) -> bytes:
        """Canonical labels of a series of the page, with those of its target."""
        # An empty value means that the label is absent.
        return canonical_labels({label: value for label, value in self._merged(labels).items() if value})

    def _merged(self, labels: dict[str, str]) -> dict[str, str]:
        """The labels of a line, combined with those of its target."""
        if self._honor_labels:
            return {**self._target, **labels}  # An empty label of the line removes that of the target.
        merged = {label: value for label, value in labels.items() if value} | self._target
        for label in sorted((label for label in self._target if labels.get(label)), key=len):
            renamed = f"exported_{label}"
            while renamed in merged:
                renamed = f"exported_{renamed}"
            merged[renamed] = labels[label]
        return merged


def _pairs(text: str, place: str) -> dict[str, str]:
    try:
        return parse_labels(text)
    except ValueError:
        raise InvalidRequest(f"{place}: not labels: {shown('{' + text + '}')}", reason="bad_input") from None


def _check_scraped(line: str, stripped: str, place: str, dialect: Dialect) -> None:
    """Refuse lines that Prometheus refuses, though their sample could be read."""
    if line.startswith(_BOM):
        raise InvalidRequest(f"{place}: begins with a byte order mark, which no page has", reason="bad_input")
    if line.endswith("\r"):
        raise InvalidRequest(f"{place}: ends with a carriage return, which is no end of a line", reason="bad_input")
    if dialect is Dialect.OPENMETRICS:
        pattern = _OPEN_COMMENT if line.startswith("#") else _OPEN_LINE
        if not pattern.fullmatch(line):
            raise InvalidRequest(f"{place}: not a line of OpenMetrics: {shown(line)}", reason="bad_input")
    elif line[:1] in (" ", "\t") and stripped and not stripped.startswith("#"):
        raise InvalidRequest(f"{place}: a blank before the name: {shown(stripped)}", reason="bad_input")
    elif "#" in line and not stripped.startswith("#") and _has_exemplar(line):
        raise InvalidRequest(f"{place}: an exemplar, which only OpenMetrics has: {shown(stripped)}", reason="bad_input")


def _has_exemplar(line: str) -> bool:
    match = _LINE.fullmatch(line)
    return match is not None and match[5] is not None


def float_text(text: str) -> str:
    """A float as OpenMetrics writes it, with a fraction or an exponent; another text as it is."""
    if not _NUMBER.fullmatch(text):
        return text
    shortest = shown_g(float(text) + 0.0)  # A negative zero becomes 0.
    return shortest if any(sign in shortest for sign in "e.nN") else f"{shortest}.0"


def _number(text: str, place: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"{place}: not a number: {shown(text)}", reason="bad_input")
    value = float(text)
    return value if value == value else _NAN

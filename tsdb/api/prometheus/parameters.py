"""Parameters: reads the form of a request as Go's net/http does, and its texts as times, durations, limits and
selectors, with Prometheus's rules and words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from tsdb.api.prometheus.errors import BadParameter
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher
from tsdb.model.window import TIME_MAX_MS
from tsdb.ops.http.bodies import HttpHead
from tsdb.promql.syntax.literals import duration_ms_of
from tsdb.selector.selectors import matchers_of, matches_empty

SELECTORS_MAX = 256  # Selectors of one request. Each is a read.
POINTS_MAX = 11_000  # The limit of Prometheus: a week at 60 s, a year at 1 h.
SECOND_NS = 1_000_000_000
MS_NS = 1_000_000
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[iI]nf(?:inity)?)|[nN]a[nN]", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_EPOCH = date(1970, 1, 1).toordinal()
# Prometheus's clients write its first and last time like this.
_EDGES_MS = {"-292273086-05-16T16:47:06Z": -TIME_MAX_MS, "+292277025-08-18T07:12:54.999999999Z": TIME_MAX_MS}

FORM = "application/x-www-form-urlencoded"
KEPT_CHARS_MAX = 1024  # Characters of a remembered parameter. With 4,096 of them the memory is some 20 MB at worst.
_SPECIAL = re.compile("[%+;]")
_HEX = frozenset("0123456789abcdefABCDEF")
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Form:
    """problem: the problem of the first part that cannot be read, which is left out; empty without one. first: the
    first value of each parameter.
    """

    def __init__(self, values: Mapping[str, Sequence[str]], problem: str = "") -> None:
        self._values = values
        self.first = {name: texts[0] for name, texts in values.items() if texts}
        self.problem = problem

    @classmethod
    def of(cls, head: HttpHead, body: bytes | bytearray) -> Form:
        """Parameters of the body come before those of the URL. A body of another content type is not read."""
        values: dict[str, list[str]] = {}
        problem = ""
        content_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if head.method in _WITH_BODY and content_type == FORM:
            problem = _read(body.decode("latin-1"), values)
        problem_of_url = _read(head.query, values)
        return cls(values, problem or problem_of_url)

    def get(self, name: str) -> str:
        """The first value of a parameter, "" without one."""
        return self.first.get(name, "")

    def all(self, name: str) -> Sequence[str]:
        """All values of a parameter."""
        return self._values.get(name, ())

    def flag(self, name: str) -> bool:
        """Whether a parameter of ours is set: 1 or true."""
        text = self.first.get(name)
        return text is not None and text.lower() in ("1", "true")


@dataclass(frozen=True, slots=True)
class LookupRange:
    """Times of a request for labels, both ends included. None: not given."""

    start_ms: int | None
    end_ms: int | None

    @property
    def is_empty(self) -> bool:
        """Whether it ends before it starts."""
        return self.start_ms is not None and self.end_ms is not None and self.end_ms < self.start_ms


def time_ns(text: str) -> int:
    """A time in float seconds or RFC 3339, in nanoseconds. Raises ValueError."""
    value = _float(text)
    if value is not None and abs(value) * 1000 <= TIME_MAX_MS:
        fraction, seconds = math.modf(value)
        return int(seconds) * SECOND_NS + _rounded(fraction * 1000) * MS_NS
    match = _DATE.fullmatch(text)
    if match is not None:
        try:
            return _date_ns(match)
        except ValueError:
            pass
    if text in _EDGES_MS:
        return _EDGES_MS[text] * MS_NS
    raise ValueError(f"cannot parse {quoted(text)} to a valid timestamp")


def duration_ns(text: str) -> int:
    """A duration in float seconds or in Prometheus's notation, in nanoseconds. Raises ValueError."""
    value = _float(text)
    if value is not None:
        if math.isnan(value):
            return _INT64_MIN  # Go converts it so; the caller then refuses it as negative.
        if not _INT64_MIN <= value * SECOND_NS <= _INT64_MAX:
            raise ValueError(f"cannot parse {quoted(text)} to a valid duration. It overflows int64")
        return int(value * SECOND_NS)
    try:
        return duration_ms_of(text) * MS_NS if text and text.isascii() else int("")
    except ValueError:
        raise ValueError(f"cannot parse {quoted(text)} to a valid duration") from None


def time_parameter(form: Form, name: str) -> int:
    """A required time, in nanoseconds. Raises BadParameter."""
    try:
        return time_ns(form.get(name))
    except ValueError as error:
        raise BadParameter(name, error) from None


def optional_time(form: Form, name: str) -> int | None:
    """A time in milliseconds; None when it is not given. Raises BadParameter."""
    text = form.first.get(name)
    if not text:
        return None
    try:
        return time_ns(text) // MS_NS
    except ValueError as error:
        raise BadParameter(name, f"invalid time value for '{name}': {error}") from None


def duration_parameter(form: Form, name: str) -> int:
    """A required duration, in nanoseconds. Raises BadParameter."""
    try:
        return duration_ns(form.get(name))
    except ValueError as error:
        raise BadParameter(name, error) from None


def timeout_s(form: Form, longest_s: float) -> float:
    """The time for a query: that of the request, at most the server's. Raises BadParameter."""
    if not form.first.get("timeout"):
        return longest_s
    return min(longest_s, duration_parameter(form, "timeout") / SECOND_NS)


def lookback_ms(form: Form, default_ms: int) -> int:
    """The lookback of the request. Raises InvalidRequest."""
    text = form.first.get("lookback_delta")
    if not text:
        return default_ms
    try:
        found_ms = duration_ns(text) // MS_NS
    except ValueError as error:
        raise InvalidRequest(f"error parsing lookback delta duration: {error}", reason="bad_parameter") from None
    return found_ms if found_ms > 0 else default_ms


def max_lag_ms(form: Form) -> int | None:
    """The lag above which an answer is refused; None: not given. Raises BadParameter."""
    if not form.first.get("max_lag"):
        return None
    found_ms = duration_parameter(form, "max_lag") // MS_NS
    if found_ms < 0:
        raise BadParameter("max_lag", "max_lag must be non-negative")
    return found_ms


def limit(form: Form) -> int:
    """The most series or texts of the answer; 0: no limit. Raises BadParameter."""
    text = form.first.get("limit")
    try:
        found = integer(text) if text else 0
    except ValueError as error:
        raise BadParameter("limit", error) from None
    if found < 0:
        raise BadParameter("limit", "limit must be non-negative")
    return found


def integer(text: str) -> int:
    """A whole number. Raises ValueError in Go's words."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"strconv.Atoi: parsing {quoted(text)}: invalid syntax")
    if len(text) > 20 or not _INT64_MIN <= int(text) <= _INT64_MAX:
        raise ValueError(f"strconv.Atoi: parsing {quoted(text)}: value out of range")
    return int(text)


def lookup_range(form: Form) -> LookupRange:
    """`start` and `end` of a request for labels. Raises BadParameter."""
    return LookupRange(optional_time(form, "start"), optional_time(form, "end"))


@dataclass(frozen=True, slots=True)
class QuerySteps:
    """start_ms, start_ms + step_ms, ... up to end_ms; step_ms 0: start_ms alone, as in an instant query."""

    start_ms: int
    end_ms: int
    step_ms: int


def steps(form: Form) -> QuerySteps:
    """`start`, `end` and `step` of a range query. Raises InvalidRequest."""
    start, end = time_parameter(form, "start"), time_parameter(form, "end")
    if end < start:
        raise BadParameter("end", "end timestamp must not be before start time")
    step = duration_parameter(form, "step")
    if step < MS_NS:
        raise BadParameter(
            "step", "zero or negative query resolution step widths are not accepted. Try a positive integer"
        )
    if (end - start) // step > POINTS_MAX:
        raise InvalidRequest(
            f"exceeded maximum resolution of {POINTS_MAX:,} points per timeseries. Try decreasing the query resolution"
            " (?step=XX)",
            reason="too_many_points",
        )
    return QuerySteps(start // MS_NS, end // MS_NS, step // MS_NS)


def check_not_empty(selectors: Sequence[Sequence[Matcher]]) -> None:
    """Each selector of `match[]` refuses a series without labels. Raises InvalidRequest."""
    if any(all(map(matches_empty, matchers)) for matchers in selectors):
        raise InvalidRequest("match[] must contain at least one non-empty matcher", reason="bad_selector")


def selectors(form: Form) -> list[tuple[Matcher, ...]]:
    """The matchers of each `match[]`. Raises InvalidRequest."""
    texts = form.all("match[]")
    if not texts:
        return []
    if len(texts) > SELECTORS_MAX:
        raise InvalidRequest(f"{len(texts)} match[] parameters; the limit is {SELECTORS_MAX}", reason="bad_selector")
    found = [matchers_of(text) for text in texts]
    check_not_empty(found)
    return found


def quoted(text: str) -> str:
    """A text in double quotes, cut when it is long."""
    shown = text if len(text) <= 200 else text[:200] + "..."
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _float(text: str) -> float | None:
    """The number that Go reads; None when it reads none, or one out of range."""
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return None if math.isinf(value) and "n" not in text.lower() else value


def _rounded(value: float) -> int:
    """Round half away from zero."""
    return math.floor(abs(value) + 0.5) * (-1 if value < 0 else 1)


def _date_ns(match: re.Match[str]) -> int:
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("not a time of day")
    days = date(year, month, day).toordinal() - _EPOCH
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    if match[8]:
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        seconds += offset if match[8] == "-" else -offset
    return seconds * SECOND_NS + int((match[7] or "0")[:9].ljust(9, "0"))


def _read(text: str, values: dict[str, list[str]]) -> str:
    problem = ""
    for part in text.split("&"):
        if not part:
            continue
        if part.isascii() and not _SPECIAL.search(part):
            found, (name, _, value) = "", part.partition("=")
        else:
            found, name, value = (_pair if len(part) <= KEPT_CHARS_MAX else _pair.__wrapped__)(part)
        if found:
            problem = problem or found
        else:
            values.setdefault(name, []).append(value)
    return problem


@lru_cache(maxsize=4096)
def _pair(part: str) -> tuple[str, str, str]:
    """(problem, name, value) of one parameter. Dashboards send the same texts again and again, with most of their
    characters escaped."""
    name, _, value = part.partition("=")
    if ";" in part:
        return "invalid semicolon separator in query", "", ""
    if problem := _bad_escape(name) or _bad_escape(value):
        return problem, "", ""
    return "", _unescaped(name), _unescaped(value)


def _bad_escape(text: str) -> str:
    at = text.find("%")
    while at >= 0:
        code = text[at : at + 3]
        if len(code) < 3 or not _HEX.issuperset(code[1:]):
            return f'invalid URL escape "{code}"'
        at = text.find("%", at + 3)
    return ""


def _unescaped(text: str) -> str:
    """Bytes that are not UTF-8 become surrogates."""
    return unquote_to_bytes(text.replace("+", " ").encode("latin-1")).decode(errors="surrogateescape")

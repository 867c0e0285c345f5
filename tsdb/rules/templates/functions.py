"""The table of the functions of templates has those of Go's text/template and of Prometheus.

A function gets its checked arguments. It raises ValueError with the text of Prometheus for values that do not fit.
"""

from __future__ import annotations

import html
import ipaddress
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus, urlsplit

import re2

from tsdb.promql.syntax.literals import duration_ms_of
from tsdb.rules.templates.printing import (
    TemplateHistogram,
    formatted,
    javascript,
    printed,
    shown,
    shown_time,
    type_name,
)

TEXT_CHARS_MAX = 64 << 10  # Characters of one value.
PATTERN_CHARS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class TemplateSample:
    """A series of a query's answer. Templates read `.Labels` and `.Value`."""

    labels: Mapping[str, str]
    value: float | TemplateHistogram


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """query: evaluates PromQL at the time of the evaluation. now_s: that time. external_url: the address
    of the pages of alerts."""

    query: Callable[[str], Sequence[TemplateSample]]
    now_s: float
    external_url: str = ""


@dataclass(frozen=True, slots=True)
class TemplateFunction:
    """kinds: types of the arguments by name in Go, "" for any, `number` for what converts to a float. rest: the
    kind of all further arguments; None: there is no further one."""

    call: Callable[..., object]
    kinds: tuple[str, ...]
    rest: str | None = None
    needs_context: bool = field(default=False)


def number_of(value: object) -> float:
    """A value as a float. Raises ValueError."""
    match value:
        case bool():
            raise ValueError("can't convert bool to float")
        case int() | float():
            return float(value)
        case str():
            return _parsed_float(value)
        case timedelta():
            return value.total_seconds()
    raise ValueError(f"can't convert {type_name(value)} to float")


def _parsed_float(text: str) -> float:
    plain = text.strip().lower().lstrip("+-") if text == text.strip() else ""
    if plain in ("inf", "infinity", "nan") or (plain and plain[0] in "0123456789." and "_" not in plain):
        try:
            return float(text)
        except ValueError:
            pass
    raise ValueError(f'strconv.ParseFloat: parsing "{text}": invalid syntax')


# Numbers for people.


def humanize(value: float) -> str:
    """A number with a metric prefix."""
    if value == 0 or not math.isfinite(value):
        return _four(value)
    if abs(value) >= 1:
        value, prefix = _divided(value, 1000, "kMGTPEZY")
        return f"{_four(value)}{prefix}"
    found = ""
    for prefix in "munpfazy":
        value, found = value * 1000, prefix
        if abs(value) >= 1:
            break
    return f"{_four(value)}{found}"


def humanize_1024(value: float) -> str:
    """A number with a binary prefix."""
    if abs(value) <= 1 or not math.isfinite(value):
        return _four(value)
    value, prefix = _divided(value, 1024, ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"))
    return f"{_four(value)}{prefix}"


def humanize_duration(value: float) -> str:
    """Seconds as days, hours, minutes and seconds, or with a prefix below one second."""
    if not math.isfinite(value):
        return _four(value)
    if value == 0:
        return "0s"
    if abs(value) < 1:
        return f"{humanize(value)}s"
    sign, value = ("-", -value) if value < 0 else ("", value)
    if value >= 1 << 63:
        return f"{sign}{_four(value)}s"
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    return f"{sign}{minutes}m {seconds}s" if minutes else f"{sign}{_four(value)}s"


def humanize_percentage(value: float) -> str:
    """A ratio as percent."""
    return f"{_four(value * 100)}%"


def humanize_timestamp(value: float) -> str:
    """Seconds since 1970 as a time."""
    return shown_time(to_time(value)) if math.isfinite(value) else _four(value)


def to_time(value: float) -> datetime:
    """Seconds since 1970 as a time. Raises ValueError outside of the years 1 to 9999."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=math.trunc(value * 1000))
    except (OverflowError, ValueError):
        raise ValueError(f"{shown(value)} cannot be represented as a timestamp without overflow") from None


def to_duration(value: float) -> timedelta:
    """Seconds as a duration. Raises ValueError."""
    if not abs(value) < 2**63 / 1e9:
        raise ValueError(f"{shown(value)} cannot be represented as a duration without overflow")
    return _Duration(seconds=value)


class _Duration(timedelta):
    """A duration that prints as Go's: 1h2m3.5s."""

    def __str__(self) -> str:
        total = abs(self.total_seconds())
        sign = "-" if self.total_seconds() < 0 else ""
        if total == 0:
            return "0s"
        if total < 1:
            return f"{sign}{_plain(total * 1e3)}ms" if total >= 1e-3 else f"{sign}{_plain(total * 1e6)}µs"
        minutes, seconds = divmod(total, 60)
        hours, minutes = divmod(int(minutes), 60)
        parts = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
        return f"{sign}{parts}{_plain(round(seconds, 6))}s"


def _plain(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _four(value: float) -> str:
    return formatted("%.4g", [value])


def _divided(value: float, by: int, prefixes: Sequence[str]) -> tuple[float, str]:
    found = ""
    for prefix in prefixes:
        if abs(value) < by:
            break
        value, found = value / by, prefix
    return value, found


# Samples.


def first(samples: Sequence[TemplateSample]) -> TemplateSample:
    """The first sample. Raises ValueError for no samples."""
    if not samples:
        raise ValueError("first() called on vector with no elements")
    return samples[0]


def _sorted_by(label: str, samples: Sequence[TemplateSample]) -> list[TemplateSample]:
    return sorted(samples, key=lambda sample: sample.labels.get(label, ""))


# Texts.


def _pattern(text: str) -> Any:
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError(f"a pattern of {len(text)} characters; the limit is {PATTERN_CHARS_MAX}")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        problem = problem.decode(errors="replace") if isinstance(problem, bytes) else problem
        raise ValueError(f"error parsing regexp: {problem}: `{text}`") from None


def _replaced(pattern: str, replacement: str, text: str) -> str:
    out: list[str] = []
    at, chars = 0, len(text)
    for match in _pattern(pattern).finditer(text):
        new = _expanded(replacement, match)
        out += (text[at : match.start()], new)
        at, chars = match.end(), chars + len(new)
        if chars > 2 * TEXT_CHARS_MAX:
            raise ValueError(f"more than {TEXT_CHARS_MAX} characters")
    return "".join((*out, text[at:]))


def _expanded(replacement: str, match: Any) -> str:
    """`$1`, `$name` and `${name}` stand for groups, `$$` for a dollar sign, as in Go."""
    groups, named = (match.group(), *match.groups()), match.groupdict()

    def group(found: Any) -> str:
        name = found.group(1) or found.group(2)
        if name is None:
            return "$" if found.group() == "$$" else str(found.group())
        if name.isdigit():
            return (groups[int(name)] or "") if int(name) < len(groups) else ""
        return named.get(name) or ""

    return str(re2.sub(r"\$\$|\$\{(\w{1,9})\}|\$(\w{1,9})", group, replacement))


def _title(text: str) -> str:
    """Each letter that follows a space or stands first as a capital."""
    before = " "
    out = []
    for char in text:
        out.append(char.upper() if not (before.isalnum() or before == "_") else char)
        before = char
    return "".join(out)


def _strip_port(text: str) -> str:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return host if bracket and rest.startswith(":") else text
    return text.partition(":")[0] if text.count(":") == 1 else text


def _strip_domain(text: str) -> str:
    host = _strip_port(text)
    port = text[len(host) :] if text.startswith(host) else ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.partition(".")[0] + port
    return text


def _link(expression: str, tab: int) -> str:
    return f"/graph?g0.expr={quote_plus(expression)}&g0.tab={tab}"


def _duration_seconds(text: str) -> float:
    return 0.0 if text == "0" else duration_ms_of(text) / 1000


def _print_lines(*values: object) -> str:
    return " ".join(map(shown, values)) + "\n"


# Go's own.


def truth(value: object) -> bool:
    """Whether a value counts as true: it is neither zero nor empty."""
    if isinstance(value, TemplateSample | TemplateHistogram | datetime):
        return True
    return bool(value)


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode(errors="surrogateescape"))
    if isinstance(value, Mapping | list | tuple):
        return len(value)
    raise ValueError(f"len of type {type_name(value)}")


def _index(value: object, *keys: object) -> object:
    for key in keys:
        if isinstance(value, Mapping):
            if not isinstance(key, str):
                raise ValueError(f"value has type {type_name(key)}; should be string")
            value = value.get(key, "")
        elif isinstance(value, list | tuple | str):
            if type(key) is not int:
                raise ValueError(f"cannot index slice/array with type {type_name(key)}")
            if not 0 <= key < _length(value):
                raise ValueError(f"index out of range: {key}")
            value = value.encode()[key] if isinstance(value, str) else value[key]
        else:
            raise ValueError(f"can't index item of type {type_name(value)}")
    return value


def _slice(value: object, *bounds: object) -> object:
    if not isinstance(value, list | tuple | str):
        raise ValueError(f"can't slice item of type {type_name(value)}")
    if len(bounds) > 2:
        raise ValueError(f"too many slice indexes: {len(bounds)}")
    ends = [0, len(value)]
    for place, bound in enumerate(bounds):
        if type(bound) is not int or not 0 <= bound <= len(value):
            raise ValueError(f"index out of range: {shown(bound)}")
        ends[place] = bound
    if ends[0] > ends[1]:
        raise ValueError(f"invalid slice index: {ends[0]} > {ends[1]}")
    return value[ends[0] : ends[1]]


def _basic(value: object) -> str:
    name = type_name(value)
    if name not in ("bool", "int", "float64", "string"):
        raise ValueError(f"invalid type for comparison: {name}" if value is not None else "invalid type for comparison")
    return name


def _equal(left: object, *others: object) -> bool:
    if not others:
        raise ValueError("missing argument for comparison")
    for right in others:
        if (left is None) != (right is None):
            continue
        if left is None:
            return True
        if _basic(left) != _basic(right):
            raise ValueError("incompatible types for comparison")
        if left == right:
            return True
    return False


def _less(left: Any, right: Any) -> bool:
    if _basic(left) != _basic(right):
        raise ValueError("incompatible types for comparison")
    if isinstance(left, bool):
        raise ValueError("invalid type for comparison")
    return bool(left < right)


def _less_or_equal(left: object, right: object) -> bool:
    return _less(left, right) or _equal(left, right)


def _external_url(context: TemplateContext) -> str:
    return context.external_url


def _path_prefix(context: TemplateContext) -> str:
    return urlsplit(context.external_url).path.rstrip("/")


def _now(context: TemplateContext) -> float:
    return context.now_s


def _query(context: TemplateContext, text: str) -> list[TemplateSample]:
    return list(context.query(text))


def _args(*values: object) -> dict[str, object]:
    return {f"arg{place}": value for place, value in enumerate(values)}


def _printf(pattern: str, *values: object) -> str:
    return formatted(pattern, values)


_NUMBER, _TEXT, _SAMPLES, _SAMPLE, _ANY = "number", "string", "template.queryResult", "*template.sample", ""

# `and` and `or` are in the table for their names: they evaluate only as many arguments as they need.
FUNCTIONS: Mapping[str, TemplateFunction] = {
    # Go.
    "and": TemplateFunction(lambda *values: values[-1], (_ANY,), _ANY),
    "or": TemplateFunction(lambda *values: values[-1], (_ANY,), _ANY),
    "not": TemplateFunction(lambda value: not truth(value), (_ANY,)),
    "eq": TemplateFunction(_equal, (_ANY,), _ANY),
    "ne": TemplateFunction(lambda left, right: not _equal(left, right), (_ANY, _ANY)),
    "lt": TemplateFunction(_less, (_ANY, _ANY)),
    "le": TemplateFunction(_less_or_equal, (_ANY, _ANY)),
    "gt": TemplateFunction(lambda left, right: not _less_or_equal(left, right), (_ANY, _ANY)),
    "ge": TemplateFunction(lambda left, right: not _less(left, right), (_ANY, _ANY)),
    "len": TemplateFunction(_length, (_ANY,)),
    "index": TemplateFunction(_index, (_ANY,), _ANY),
    "slice": TemplateFunction(_slice, (_ANY,), _ANY),
    "print": TemplateFunction(lambda *values: printed(values), (), _ANY),
    "printf": TemplateFunction(_printf, (_TEXT,), _ANY),
    "println": TemplateFunction(_print_lines, (), _ANY),
    "html": TemplateFunction(lambda *values: html.escape(printed(values)), (), _ANY),
    "js": TemplateFunction(lambda *values: javascript(printed(values)), (), _ANY),
    "urlquery": TemplateFunction(lambda *values: quote_plus(printed(values)), (), _ANY),
    # Samples.
    "query": TemplateFunction(_query, (_TEXT,), needs_context=True),
    "first": TemplateFunction(first, (_SAMPLES,)),
    "label": TemplateFunction(lambda name, sample: sample.labels.get(name, ""), (_TEXT, _SAMPLE)),
    "value": TemplateFunction(lambda sample: sample.value, (_SAMPLE,)),
    "strvalue": TemplateFunction(lambda sample: sample.labels.get("__value__", ""), (_SAMPLE,)),
    "sortByLabel": TemplateFunction(_sorted_by, (_TEXT, _SAMPLES)),
    # Numbers.
    "humanize": TemplateFunction(humanize, (_NUMBER,)),
    "humanize1024": TemplateFunction(humanize_1024, (_NUMBER,)),
    "humanizeDuration": TemplateFunction(humanize_duration, (_NUMBER,)),
    "humanizePercentage": TemplateFunction(humanize_percentage, (_NUMBER,)),
    "humanizeTimestamp": TemplateFunction(humanize_timestamp, (_NUMBER,)),
    "toTime": TemplateFunction(to_time, (_NUMBER,)),
    "toDuration": TemplateFunction(to_duration, (_NUMBER,)),
    "now": TemplateFunction(_now, (), needs_context=True),
    "parseDuration": TemplateFunction(_duration_seconds, (_TEXT,)),
    # Texts.
    "args": TemplateFunction(_args, (), _ANY),
    "reReplaceAll": TemplateFunction(_replaced, (_TEXT, _TEXT, _TEXT)),
    "match": TemplateFunction(lambda pattern, text: bool(_pattern(pattern).search(text)), (_TEXT, _TEXT)),
    "title": TemplateFunction(_title, (_TEXT,)),
    "toUpper": TemplateFunction(lambda text: text.upper(), (_TEXT,)),
    "toLower": TemplateFunction(lambda text: text.lower(), (_TEXT,)),
    "safeHtml": TemplateFunction(lambda text: text, (_TEXT,)),
    "stripPort": TemplateFunction(_strip_port, (_TEXT,)),
    "stripDomain": TemplateFunction(_strip_domain, (_TEXT,)),
    "urlQueryEscape": TemplateFunction(lambda text: quote_plus(text), (_TEXT,)),
    # Links.
    "graphLink": TemplateFunction(lambda text: _link(text, 0), (_TEXT,)),
    "tableLink": TemplateFunction(lambda text: _link(text, 1), (_TEXT,)),
    "pathPrefix": TemplateFunction(_path_prefix, (), needs_context=True),
    "externalURL": TemplateFunction(_external_url, (), needs_context=True),
}

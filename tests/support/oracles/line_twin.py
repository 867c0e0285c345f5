"""Line protocol in plain Python, one line after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isinf

LIMIT_LINE_BYTES = 256 * 1024
_LINE_END = rb"(?=\n|\r\n|\r?\Z)"
_TO_SPACE = re.compile(rb"(?:\\[, =]|(?!\r(?:\n|\Z))[^, \n])*")
_TO_EQUALS = re.compile(rb"(?:\\[, =]|(?!\r(?:\n|\Z))[^, =\n])*")
_TO_END_OF_VALUE = re.compile(rb"(?:(?!\r(?:\n|\Z))[^, \n])*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_FLOAT = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_INTEGER = re.compile(rb"[+-]?\d+")
_BOOLEANS = {name: float(name[0] in b"tT") for name in rb"t T true True TRUE f F false False FALSE".split()}


@dataclass
class Twin:
    """rows: (line, labels, ts_ms, value). refused: (line, reason)."""

    rows: list[tuple[int, bytes, int, float]] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    strings: int = 0


class _Refused(Exception):
    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.reason, self.at = reason, at


@dataclass(frozen=True)
class TwinRules:
    """multiply, divide: the precision. extra: a label of all lines; an empty name stands for no label."""

    multiply: int = 1
    divide: int = 1_000_000
    now_ms: int = 0
    labels_max: int = 64
    total_bytes_max: int = 8192
    sanitised: bool = True
    value_dropped: bool = False
    extra: tuple[bytes, bytes] = (b"", b"")


def decode(body: bytes, rules: TwinRules) -> Twin:
    """All lines of a request."""
    twin, start = Twin(), 0
    while start < len(body):
        line = body.count(b"\n", 0, start) + 1
        first = re.compile(rb"[ \t]*").match(body, start).end()  # type: ignore[union-attr]  # It matches nothing too.
        if body[first : first + 1] == b"#" or _ends(body, first):
            start = _next_line(body, first)
            continue
        try:
            rows, strings, at = _line(body, start, first, rules)
            twin.rows += [(line, *row) for row in rows]
            twin.strings += strings
        except _Refused as refused:
            twin.refused.append((line, refused.reason))
            at = refused.at
        start = _next_line(body, at)
    return twin


def _line(body: bytes, start: int, first: int, rules: TwinRules) -> tuple[list[tuple[bytes, int, float]], int, int]:
    measurement, tags, at = _series(body, first, rules)
    fields, strings, at = _fields(body, start, at)
    ts_ms, at = _timestamp(body, at, rules)
    if at - start > LIMIT_LINE_BYTES:
        raise _Refused("line_too_long", at)
    try:
        body[start:at].decode()
    except UnicodeDecodeError:
        raise _Refused("not_utf8", at) from None
    rows = []
    for key, value in fields:
        name = measurement if rules.value_dropped and key == b"value" else measurement + b"_" + _clean(key, rules, b":")
        pairs = [(b"__name__", name), *tags]
        rows.append((b"\xff".join(part for pair in pairs for part in pair), ts_ms, value))
    return rows, strings, at


def _series(body: bytes, at: int, rules: TwinRules) -> tuple[bytes, list[tuple[bytes, bytes]], int]:
    raw = _match(_TO_SPACE, body, at)
    if not raw:
        raise _Refused("missing_measurement", at)
    measurement = _digit_first(_clean(re.sub(rb"\\([, ])", rb"\1", raw), rules, b":", escaped=False), rules)
    if len(measurement) > rules.total_bytes_max:
        raise _Refused("labels_too_long", at)
    at += len(raw)
    tags: list[tuple[bytes, bytes]] = []
    while body[at : at + 1] == b",":
        at, tag = _tag(body, at + 1, tags, rules)
        tags += tag
    name, value = rules.extra
    if name and name not in dict(tags):
        tags.append((name, value))
        _check_size(tags, at, rules)
    return measurement, tags, at


def _tag(
    body: bytes, at: int, tags: list[tuple[bytes, bytes]], rules: TwinRules
) -> tuple[int, list[tuple[bytes, bytes]]]:
    raw_name = _match(_TO_EQUALS, body, at)
    equals = at + len(raw_name)
    if not raw_name or body[equals : equals + 1] != b"=":
        raise _Refused("bad_tag", equals)
    raw_value = _match(_TO_EQUALS, body, equals + 1)
    end = equals + 1 + len(raw_value)
    if body[end : end + 1] == b"=":
        raise _Refused("bad_tag", end)
    if not raw_value:
        return end, []
    if len(tags) >= rules.labels_max - 1:
        raise _Refused("too_many_tags", at)
    tag = (_digit_first(_clean(raw_name, rules, b""), rules), re.sub(rb"\\([, =])", rb"\1", raw_value))
    _check_size([*tags, tag], at, rules)
    if tag[0] in dict(tags):
        raise _Refused("duplicate_tag", at)
    return end, [tag]


def _check_size(tags: list[tuple[bytes, bytes]], at: int, rules: TwinRules) -> None:
    if sum(len(name) + len(value) + 2 for name, value in tags) > rules.total_bytes_max:
        raise _Refused("labels_too_long", at)


def _fields(body: bytes, start: int, at: int) -> tuple[list[tuple[bytes, float]], int, int]:
    at = re.compile(rb" *").match(body, at).end()  # type: ignore[union-attr]  # It matches nothing too.
    if _ends(body, at):
        raise _Refused("missing_fields", at)
    fields, strings = [], 0
    while True:
        key = _match(_TO_EQUALS, body, at)
        at += len(key)
        if not key or body[at : at + 1] != b"=":
            raise _Refused("bad_field", at)
        at += 1
        if body[at : at + 1] == b'"':
            string = _STRING.match(body, at, start + LIMIT_LINE_BYTES)
            if not string:
                raise _Refused("unclosed_string", at)
            at = string.end()
            strings += 1
        else:
            value = _match(_TO_END_OF_VALUE, body, at)
            fields.append((key, _number(value, at)))
            at += len(value)
        if body[at : at + 1] != b",":
            return fields, strings, at
        at += 1


def _number(text: bytes, at: int) -> float:
    if not text:
        raise _Refused("bad_field", at)
    if len(text) > 1024:
        raise _Refused("bad_number", at)
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[-1:] in (b"i", b"u"):
        low, high = (-(1 << 63), 1 << 63) if text[-1:] == b"i" else (0, 1 << 64)
        if not _INTEGER.fullmatch(text[:-1]) or (text[-1:] == b"u" and text[:1] in b"+-"):
            raise _Refused("bad_number", at)
        if not low <= int(text[:-1]) < high:
            raise _Refused("number_out_of_range", at)
        return float(int(text[:-1]))
    if not _FLOAT.fullmatch(text):
        raise _Refused("bad_number", at)
    if isinf(float(text)):
        raise _Refused("number_out_of_range", at)
    return float(text)


def _timestamp(body: bytes, at: int, rules: TwinRules) -> tuple[int, int]:
    if _ends(body, at):
        return rules.now_ms, at
    if body[at : at + 1] != b" ":
        raise _Refused("bad_field", at)
    at = re.compile(rb" *").match(body, at).end()  # type: ignore[union-attr]  # It matches nothing too.
    if _ends(body, at):
        return rules.now_ms, at
    text = _match(_TO_END_OF_VALUE, body, at)
    if not _INTEGER.fullmatch(text):
        raise _Refused("bad_timestamp", at)
    if abs(int(text)) > ((1 << 63) - 1) // rules.multiply:
        raise _Refused("timestamp_out_of_range", at)
    at = re.compile(rb" *").match(body, at + len(text)).end()  # type: ignore[union-attr]  # It matches nothing too.
    if not _ends(body, at):
        raise _Refused("bad_timestamp", at)
    return int(text) * rules.multiply // rules.divide, at


def _clean(raw: bytes, rules: TwinRules, allowed: bytes, *, escaped: bool = True) -> bytes:
    name = re.sub(rb"\\([, =])", rb"\1", raw) if escaped else raw
    if not rules.sanitised:
        return name
    one = re.sub(rb"[\x80-\xbf]", b"", name)  # A character keeps its first byte.
    return re.sub(rb"[^A-Za-z0-9_" + allowed + rb"]", b"_", one)


def _digit_first(name: bytes, rules: TwinRules) -> bytes:
    return b"_" + name if rules.sanitised and name[:1].isdigit() else name


def _match(pattern: re.Pattern[bytes], body: bytes, at: int) -> bytes:
    found = pattern.match(body, at)
    assert found
    return found.group()


def _ends(body: bytes, at: int) -> bool:
    return re.compile(_LINE_END).match(body, at) is not None


def _next_line(body: bytes, at: int) -> int:
    end = body.find(b"\n", at)
    return len(body) if end < 0 else end + 1

"""Values: converts attributes to Python objects and to text, for the few that no kernel handles.

These are the attributes of resources and scopes, and values of points that are doubles, arrays, maps or bytes. Text is
that of OpenTelemetry's Go library, since Prometheus stores it: numbers as ECMAScript writes them, bytes as base64,
arrays and maps as JSON with sorted keys.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from decimal import Decimal
from typing import TypeAlias

from ingest.otlp.wire.field_kernels import (
    ARRAY,
    BOOL,
    BYTES,
    DOUBLE,
    INT,
    MAP,
    STRING,
)
from ingest.protobuf_fields import Buffer, fields, signed
from tsdb.codec.protobuf_kernels import FIXED64, LENGTH, VARINT
from tsdb.model.errors import InvalidRequest

DEPTH_MAX = 32  # Depth of nested arrays and maps. Real attributes have one or two levels.
Value: TypeAlias = "str | bool | int | float | bytes | list[Value] | dict[str, Value] | None"

_DOUBLE = struct.Struct("<d")
# json.Marshal of Go escapes these, so that a text is safe inside HTML.
_GO_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def read_attributes(data: Buffer, pos: int, end: int, number: int) -> list[tuple[bytes, Value]]:
    """Key and value of each KeyValue that is field `number` of a message."""
    return [
        _key_value(data, start, stop, DEPTH_MAX)
        for found, kind, start, stop in fields(data, pos, end)
        if found == number and kind == LENGTH
    ]


def odd_value(data: Buffer, kind: int, pos: int, end: int) -> Value:
    """The content of an AnyValue whose kind is double, array, map or bytes."""
    return _content(data, kind, pos, end, DEPTH_MAX)


def text_of(value: Value) -> bytes:
    """A value as the text of a label. Text that is not valid UTF-8 stays unchanged."""
    match value:
        case None:
            return b""
        case str():
            return value.encode(errors="surrogateescape")
        case bool():
            return b"true" if value else b"false"
        case int():
            return b"%d" % value
        case float():
            return float_text(value).encode()
        case bytes():
            return base64.b64encode(value)
    try:
        return _json(value).encode(errors="replace")
    except ValueError:  # A number that JSON does not have. Go's library then has no text.
        return b""


def float_text(value: float) -> str:
    """The number as ECMAScript writes it: the shortest digits, with an exponent below 1e-6 and from 1e21."""
    if not math.isfinite(value):
        return f"json: unsupported value: {plain_text(value)}"
    if value and not 1e-6 <= abs(value) < 1e21:
        digits, exponent = repr(value).split("e")
        return f"{digits.removesuffix('.0')}e{int(exponent):+d}"
    return plain_text(value)


def plain_text(value: float) -> str:
    """The shortest digits that give the number again, without an exponent: the text of `le` and `quantile`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    if "e" in text:
        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


def _json(value: Value) -> str:
    match value:
        case None:
            return "null"
        case float():
            if not math.isfinite(value):
                raise ValueError(value)
            return float_text(value)
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case list():
            return f"[{','.join(map(_json, value))}]"
        case dict():
            members = (f"{_quoted(key)}:{_json(value[key])}" for key in sorted(value))
            return f"{{{','.join(members)}}}"
        case str():
            return _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    valid = text.encode(errors="surrogateescape").decode(errors="replace")
    return json.dumps(valid, ensure_ascii=False).translate(_GO_ESCAPES)


def _key_value(data: Buffer, pos: int, end: int, depth: int) -> tuple[bytes, Value]:
    key, value = b"", None
    for number, kind, start, stop in fields(data, pos, end):
        if number == 1 and kind == LENGTH:
            key = bytes(data[start:stop])
        elif number == 2 and kind == LENGTH:
            value = _any_value(data, start, stop, depth)
    return key, value


def _any_value(data: Buffer, pos: int, end: int, depth: int) -> Value:
    value: Value = None
    for number, kind, start, stop in fields(data, pos, end):
        wanted = VARINT if number in (BOOL, INT) else FIXED64 if number == DOUBLE else LENGTH
        if STRING <= number <= BYTES and kind == wanted:
            value = _content(data, number, start, stop, depth)
    return value


def _content(data: Buffer, kind: int, pos: int, end: int, depth: int) -> Value:
    if not depth:
        raise InvalidRequest(
            f"the request is not valid: the attribute value at byte {pos} is nested in more than {DEPTH_MAX} arrays "
            "and maps; make it flat",
            reason="malformed_request",
            limit=DEPTH_MAX,
        )
    if kind == STRING:
        return data[pos:end].decode(errors="surrogateescape")
    if kind == BOOL:
        return bool(pos)
    if kind == INT:
        return signed(pos)
    if kind == DOUBLE:
        number: float = _DOUBLE.unpack_from(data, pos)[0]
        return number
    if kind == BYTES:
        return bytes(data[pos:end])
    found = [(start, stop) for number, wire, start, stop in fields(data, pos, end) if number == 1 and wire == LENGTH]
    if kind == ARRAY:
        return [_any_value(data, start, stop, depth - 1) for start, stop in found]
    assert kind == MAP, kind
    pairs = [_key_value(data, start, stop, depth - 1) for start, stop in found]
    return {key.decode(errors="surrogateescape"): value for key, value in pairs}

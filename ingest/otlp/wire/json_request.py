"""OTLP/JSON: decodes an ExportMetricsServiceRequest from JSON and encodes it as protobuf, for the one decoder.

Keys are lowerCamelCase, 64-bit integers may be strings, enums are numbers, bytes are base64, but identifiers of traces
and spans are hex. Unknown keys and null are ignored. This path runs in Python for every data point:
senders that write much use protobuf.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from ingest.otlp.wire.values import DEPTH_MAX
from tsdb.codec.protobuf_kernels import FIXED64, LENGTH, VARINT
from tsdb.model.errors import InvalidRequest

VALUES_MAX = 1_000_000  # Values of one request. As Python objects they take up to 100 bytes each.
SHOWN_MAX = 100
_DOUBLE = struct.Struct("<d")
_TEMPORALITIES = {
    "AGGREGATION_TEMPORALITY_UNSPECIFIED": 0,
    "AGGREGATION_TEMPORALITY_DELTA": 1,
    "AGGREGATION_TEMPORALITY_CUMULATIVE": 2,
}
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_to_wire(data: bytes) -> bytes:
    """Raises InvalidRequest: malformed_request with the byte or the path of the value, message_too_large."""
    values = np.frombuffer(data, np.uint8)
    count = sum(int(np.count_nonzero(values == ord(mark))) for mark in ",[{")
    if count > VALUES_MAX:
        raise InvalidRequest(
            f"the request has {count} JSON values or more; limit is {VALUES_MAX}: split it, or send protobuf",
            reason="message_too_large",
            got=count,
            limit=VALUES_MAX,
        )
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        # The library counts characters of the text, which for ASCII are bytes.
        raise _malformed(f"it is no JSON at byte {error.pos} of {len(data)}: {error.msg}") from None
    return _message(_REQUEST, found, "the request", 0)


def _malformed(text: str) -> InvalidRequest:
    return InvalidRequest(f"the request is not a valid ExportMetricsServiceRequest: {text}", reason="malformed_request")


@dataclass(frozen=True, slots=True)
class _Field:
    """number: number of the protobuf field. encode: encodes one value, given its content and its path. wire: the wire
    type."""

    number: int
    wire: int
    encode: Callable[[Any, str, int], bytes]
    repeated: bool = False

    def write(self, value: Any, path: str, depth: int) -> bytes:
        """The field with its tag."""
        content = self.encode(value, path, depth)
        size = varint(len(content)) if self.wire == LENGTH else b""
        return varint(self.number << 3 | self.wire) + size + content


_Schema = Mapping[str, _Field]


def _message(schema: _Schema, value: Any, path: str, depth: int) -> bytes:
    if not isinstance(value, dict):
        raise _malformed(f"{path} is {_shown(value)}; an object is expected")
    parts = []
    for key, item in value.items():
        field = schema.get(key)
        if field is None or item is None:
            continue
        inner = f"{path}.{key}"
        if not field.repeated:
            parts.append(field.write(item, inner, depth))
            continue
        if not isinstance(item, list):
            raise _malformed(f"{inner} is {_shown(item)}; an array is expected")
        parts += [field.write(one, f"{inner}[{index}]", depth) for index, one in enumerate(item)]
    return b"".join(parts)


def varint(value: int) -> bytes:
    """Encode an unsigned integer in groups of 7 bits."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(value: Any, path: str, low: int, end: int) -> int:
    text = isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdecimal()
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    number = int(value) if text or whole else None
    if number is None or not low <= number < end:
        raise _malformed(f"{path} is {_shown(value)}; an integer from {low} to {end - 1} is expected")
    return number


def _fixed64(value: Any, path: str, depth: int) -> bytes:
    return _integer(value, path, 0, 1 << 64).to_bytes(8, "little")


def _sfixed64(value: Any, path: str, depth: int) -> bytes:
    return _integer(value, path, -(1 << 63), 1 << 63).to_bytes(8, "little", signed=True)


def _int64(value: Any, path: str, depth: int) -> bytes:
    return varint(_integer(value, path, -(1 << 63), 1 << 63) & 0xFFFFFFFFFFFFFFFF)


def _uint64(value: Any, path: str, depth: int) -> bytes:
    return varint(_integer(value, path, 0, 1 << 64))


def _uint32(value: Any, path: str, depth: int) -> bytes:
    return varint(_integer(value, path, 0, 1 << 32))


def _sint32(value: Any, path: str, depth: int) -> bytes:
    number = _integer(value, path, -(1 << 31), 1 << 31)
    return varint((number << 1 ^ number >> 31) & 0xFFFFFFFF)


def _temporality(value: Any, path: str, depth: int) -> bytes:
    named = _TEMPORALITIES.get(value, value) if isinstance(value, str) else value
    return varint(_integer(named, path, 0, 1 << 31))


def _double(value: Any, path: str, depth: int) -> bytes:
    number = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and value in _NUMBERS:
        number = _NUMBERS[value]
    elif isinstance(value, str) and len(value) <= SHOWN_MAX:
        try:
            number = float(value)
        except ValueError:
            number = None
    if number is None:
        raise _malformed(f"{path} is {_shown(value)}; a number is expected")
    return _DOUBLE.pack(number)


def _bool(value: Any, path: str, depth: int) -> bytes:
    if not isinstance(value, bool):
        raise _malformed(f"{path} is {_shown(value)}; true or false is expected")
    return b"\x01" if value else b"\x00"


def _string(value: Any, path: str, depth: int) -> bytes:
    if not isinstance(value, str):
        raise _malformed(f"{path} is {_shown(value)}; text is expected")
    return value.encode()


def _bytes(value: Any, path: str, depth: int) -> bytes:
    text = _string(value, path, depth).translate(bytes.maketrans(b"-_", b"+/"))
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        raise _malformed(f"{path} is {_shown(value)}; base64 is expected") from None


def _hex(value: Any, path: str, depth: int) -> bytes:
    try:
        return binascii.unhexlify(_string(value, path, depth))
    except binascii.Error:
        raise _malformed(f"{path} is {_shown(value)}; hex digits are expected") from None


def _any_value(value: Any, path: str, depth: int) -> bytes:
    # One level more than the decoder takes, so that the decoder refuses the depth for JSON too.
    if depth > DEPTH_MAX + 1:
        raise _malformed(f"{path[:SHOWN_MAX]}... is nested in more than {DEPTH_MAX} arrays and maps; make it flat")
    return _message(_ANY_VALUE, value, path, depth + 1)


def _of(schema: _Schema) -> Callable[[Any, str, int], bytes]:
    return lambda value, path, depth: _message(schema, value, path, depth)


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool | None) else type(value).__name__
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


_KEY_VALUE: _Schema = {"key": _Field(1, LENGTH, _string), "value": _Field(2, LENGTH, _any_value)}
_ANY_VALUE: _Schema = {
    "stringValue": _Field(1, LENGTH, _string),
    "boolValue": _Field(2, VARINT, _bool),
    "intValue": _Field(3, VARINT, _int64),
    "doubleValue": _Field(4, FIXED64, _double),
    "arrayValue": _Field(5, LENGTH, _of({"values": _Field(1, LENGTH, _any_value, repeated=True)})),
    "kvlistValue": _Field(6, LENGTH, _of({"values": _Field(1, LENGTH, _of(_KEY_VALUE), repeated=True)})),
    "bytesValue": _Field(7, LENGTH, _bytes),
}


def _attributes(number: int) -> dict[str, _Field]:
    return _attributes_named("attributes", number)


def _attributes_named(name: str, number: int) -> dict[str, _Field]:
    return {name: _Field(number, LENGTH, _of(_KEY_VALUE), repeated=True)}


def _exemplars(number: int) -> dict[str, _Field]:
    return {"exemplars": _Field(number, LENGTH, _of(_EXEMPLAR), repeated=True)}


_EXEMPLAR: _Schema = {
    **_attributes_named("filteredAttributes", 7),
    "timeUnixNano": _Field(2, FIXED64, _fixed64),
    "asDouble": _Field(3, FIXED64, _double),
    "spanId": _Field(4, LENGTH, _hex),
    "traceId": _Field(5, LENGTH, _hex),
    "asInt": _Field(6, FIXED64, _sfixed64),
}


_TIMES: _Schema = {"startTimeUnixNano": _Field(2, FIXED64, _fixed64), "timeUnixNano": _Field(3, FIXED64, _fixed64)}
_TOTALS: _Schema = {"count": _Field(4, FIXED64, _fixed64), "sum": _Field(5, FIXED64, _double)}
_NUMBER_POINT: _Schema = {
    **_TIMES,
    **_attributes(7),
    **_exemplars(5),
    "asDouble": _Field(4, FIXED64, _double),
    "asInt": _Field(6, FIXED64, _sfixed64),
    "flags": _Field(8, VARINT, _uint32),
}
_HISTOGRAM_POINT: _Schema = {
    **_TIMES,
    **_TOTALS,
    **_attributes(9),
    **_exemplars(8),
    "bucketCounts": _Field(6, FIXED64, _fixed64, repeated=True),
    "explicitBounds": _Field(7, FIXED64, _double, repeated=True),
    "flags": _Field(10, VARINT, _uint32),
}
_BUCKETS: _Schema = {
    "offset": _Field(1, VARINT, _sint32),
    "bucketCounts": _Field(2, VARINT, _uint64, repeated=True),
}
_EXPONENTIAL_POINT: _Schema = {
    **_TIMES,
    **_TOTALS,
    **_attributes(1),
    **_exemplars(11),
    "scale": _Field(6, VARINT, _sint32),
    "zeroCount": _Field(7, FIXED64, _fixed64),
    "positive": _Field(8, LENGTH, _of(_BUCKETS)),
    "negative": _Field(9, LENGTH, _of(_BUCKETS)),
    "flags": _Field(10, VARINT, _uint32),
    "zeroThreshold": _Field(14, FIXED64, _double),
}
_QUANTILE: _Schema = {"quantile": _Field(1, FIXED64, _double), "value": _Field(2, FIXED64, _double)}
_SUMMARY_POINT: _Schema = {
    **_TIMES,
    **_TOTALS,
    **_attributes(7),
    "quantileValues": _Field(6, LENGTH, _of(_QUANTILE), repeated=True),
    "flags": _Field(8, VARINT, _uint32),
}


def _points(schema: _Schema) -> dict[str, _Field]:
    return {
        "dataPoints": _Field(1, LENGTH, _of(schema), repeated=True),
        "aggregationTemporality": _Field(2, VARINT, _temporality),
    }


_METRIC: _Schema = {
    "name": _Field(1, LENGTH, _string),
    "description": _Field(2, LENGTH, _string),
    "unit": _Field(3, LENGTH, _string),
    "gauge": _Field(5, LENGTH, _of(_points(_NUMBER_POINT))),
    "sum": _Field(7, LENGTH, _of({**_points(_NUMBER_POINT), "isMonotonic": _Field(3, VARINT, _bool)})),
    "histogram": _Field(9, LENGTH, _of(_points(_HISTOGRAM_POINT))),
    "exponentialHistogram": _Field(10, LENGTH, _of(_points(_EXPONENTIAL_POINT))),
    "summary": _Field(11, LENGTH, _of(_points(_SUMMARY_POINT))),
}
_SCOPE: _Schema = {
    **_attributes(3),
    "name": _Field(1, LENGTH, _string),
    "version": _Field(2, LENGTH, _string),
}
_SCOPE_METRICS: _Schema = {
    "scope": _Field(1, LENGTH, _of(_SCOPE)),
    "metrics": _Field(2, LENGTH, _of(_METRIC), repeated=True),
    "schemaUrl": _Field(3, LENGTH, _string),
}
_RESOURCE_METRICS: _Schema = {
    "resource": _Field(1, LENGTH, _of(_attributes(1))),
    "scopeMetrics": _Field(2, LENGTH, _of(_SCOPE_METRICS), repeated=True),
}
_REQUEST: _Schema = {"resourceMetrics": _Field(1, LENGTH, _of(_RESOURCE_METRICS), repeated=True)}

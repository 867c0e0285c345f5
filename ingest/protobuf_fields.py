"""The fields of a protobuf message in Python, for the few parts of a request that no kernel handles: exemplars, and
attributes of resources. A field is valid here where `next_field` of tsdb.codec.protobuf_kernels takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from tsdb.codec.protobuf_kernels import FIELD_NUMBER_MAX, FIXED32, FIXED64, LENGTH, VARINT
from tsdb.model.errors import InvalidRequest

Buffer: TypeAlias = bytes | bytearray

_SIZES = {FIXED64: 8, FIXED32: 4}


def fields(data: Buffer, pos: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, wire type, varint or start of the content, end) of each field of a message.

    Raises InvalidRequest (malformed_request) with the byte.
    """
    while pos < end:
        field_at = pos
        tag, pos = _varint(data, pos, end, field_at)
        number, kind = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise _malformed(field_at)
        if kind == VARINT:
            value, pos = _varint(data, pos, end, field_at)
            yield number, kind, value, pos
            continue
        size = _SIZES.get(kind, -1)
        if kind == LENGTH:
            size, pos = _varint(data, pos, end, field_at)
        if size < 0 or size > end - pos:
            raise _malformed(field_at)
        yield number, kind, pos, pos + size
        pos += size


def varints(data: Buffer, pos: int, end: int) -> Iterator[int]:
    """The numbers of a packed field. Raises InvalidRequest (malformed_request) with the byte."""
    while pos < end:
        value, pos = _varint(data, pos, end, pos)
        yield value


def signed(value: int) -> int:
    """The int64 of a varint."""
    return value - (1 << 64) if value >> 63 else value


def _varint(data: Buffer, pos: int, end: int, field_at: int) -> tuple[int, int]:
    if pos < end and data[pos] < 128:  # Nearly all tags and sizes.
        return data[pos], pos + 1
    value = 0
    for shift in range(0, 70, 7):
        if pos >= end:
            break
        byte = data[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                break
            return value, pos
    raise _malformed(field_at)


def _malformed(pos: int) -> InvalidRequest:
    return InvalidRequest(
        f"the request is not valid: it breaks the protobuf format at byte {pos} of a message",
        reason="malformed_request",
    )

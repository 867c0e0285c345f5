"""Helpers that step through the fields of a protobuf message. Nothing is read behind the end that a caller gives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.wire.fields import BOOL, BYTES, DOUBLE, FIXED32, FIXED64, INT, LENGTH, NOTHING, VARINT
from tsdb.codec.bits_kernels import shift_right
from tsdb.codec.jit import helper
from tsdb.codec.varint_kernels import get_varint

FIELD_NUMBER_MAX = (1 << 29) - 1


@helper
def next_field(data: NDArray[np.uint8], pos: int, end: int) -> tuple[int, int, int, int, int]:
    """(new position, field number, wire type, value or start of the content, end of the content).

    A field that breaks the format gives the new position ~(its byte), which is negative.
    """
    tag, at = get_varint(data, pos, end)
    number, kind = shift_right(tag, 3), tag & 7
    if at < 0 or number < 1 or number > FIELD_NUMBER_MAX:
        return ~pos, 0, 0, 0, 0
    if kind == VARINT:
        value, after = get_varint(data, at, end)
        if after < 0:
            return ~pos, 0, 0, 0, 0
        return after, number, kind, value, after
    if kind == LENGTH:
        size, content = get_varint(data, at, end)
        if content < 0 or size < 0 or size > end - content:
            return ~pos, 0, 0, 0, 0
        return content + size, number, kind, content, content + size
    size = 8 if kind == FIXED64 else 4
    if (kind != FIXED64 and kind != FIXED32) or size > end - at:
        return ~pos, 0, 0, 0, 0
    return at + size, number, kind, at, at + size


@helper
def zigzag(value: int) -> int:
    """The signed number of a sint32."""
    value &= 0xFFFFFFFF
    return int(shift_right(value, 1)) ^ -(value & 1)


@helper
def read_attribute(data: NDArray[np.uint8], pos: int, end: int) -> tuple[int, int, int, int, int, int]:
    """A KeyValue: (0 or ~byte of an error, start and end of the key, kind of the value, its start or number, its end).

    The number is that of a bool or int. A double's start is that of its 8 bytes.
    """
    key_at, key_end, kind, value, value_end = pos, pos, NOTHING, pos, pos
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos, 0, 0, 0, 0, 0
        if wire != LENGTH:
            continue
        if number == 1:
            key_at, key_end = start, stop
        elif number == 2:
            kind, value, value_end = NOTHING, start, start
            at = start
            while at < stop:
                at, number, wire, inner, inner_end = next_field(data, at, stop)
                if at < 0:
                    return at, 0, 0, 0, 0, 0
                fits = wire == (VARINT if number in (BOOL, INT) else FIXED64 if number == DOUBLE else LENGTH)
                if fits and number <= BYTES:
                    kind, value, value_end = number, inner, inner_end
    return 0, key_at, key_end, kind, value, value_end

"""Exemplars of a remote-write request: their messages, in both versions, as exemplars of rows.

An Exemplar of version 1 has Label messages, that of version 2 references to the symbols; value and timestamp have the
same fields. An absent value or timestamp is zero, as Prometheus keeps it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from ingest.exemplars import LABELS_MALFORMED, TOO_MANY, ExemplarRows, count_dropped
from ingest.remote_write.wire import VERSION_1, Wire
from ingest.rows import RowExemplars
from tsdb.codec.records.exemplar_record import LABEL_BYTES_MAX
from tsdb.model.errors import InvalidRequest

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_REFERENCES_MAX = 1024  # References of one exemplar, which may have 128 characters.


def exemplars_of(wire: Wire, body: bytes | bytearray, version: int) -> RowExemplars | None:
    """Raises InvalidRequest (malformed_request) for bytes that are not an Exemplar message."""
    count_dropped(TOO_MANY, wire.exemplars_left_out)
    found = ExemplarRows(len(wire.exemplars))
    symbols = None if version == VERSION_1 else wire.symbols.tolist()
    try:
        for row, start, stop in wire.exemplars.tolist():
            _add(found, row, bytes(body[start:stop]), body, symbols)
    except (IndexError, struct.error, ValueError) as error:
        raise InvalidRequest("an exemplar is corrupt protobuf", reason="malformed_request") from error
    return found.built()


def _add(found: ExemplarRows, row: int, message: bytes, body: bytes | bytearray, symbols: Sequence[int] | None) -> None:
    """symbols: spans of the symbols; None in version 1, whose labels are messages."""
    value, ts_ms = 0.0, 0
    references: list[int] = []
    pairs: list[tuple[bytes, bytes]] = []
    for number, kind, content, part in _fields(message):
        if number == 1 and kind == _LENGTH and symbols is None:
            texts = {one: text for one, wire, _, text in _fields(part) if wire == _LENGTH}
            pairs.append((texts.get(1, b""), texts.get(2, b"")))
        elif number == 1 and kind == _LENGTH:
            references += list(_varints(part))
        elif number == 1 and kind == _VARINT:
            references.append(content)
        elif number == 2 and kind == _FIXED64:
            (value,) = struct.unpack("<d", part)
        elif number == 3 and kind == _VARINT:
            ts_ms = _signed(content)
    if symbols is not None:
        if len(references) % 2 or any(2 * one >= len(symbols) for one in references):
            count_dropped(LABELS_MALFORMED)
            return
        named = [_symbol(body, symbols, one) for one in references[:_REFERENCES_MAX]]
        pairs += zip(named[::2], named[1::2], strict=True)
    found.add(row, ts_ms, value, pairs)


def _symbol(body: bytes | bytearray, symbols: Sequence[int], number: int) -> bytes:
    """A symbol. Two bytes of a reference may name one of a MiB: no more is copied than an exemplar may have."""
    start, stop = symbols[2 * number], symbols[2 * number + 1]
    return bytes(body[start : min(stop, start + LABEL_BYTES_MAX)])


def _fields(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(number, wire type, varint, bytes) of each field."""
    pos, end = 0, len(data)
    while pos < end:
        tag, pos = _varint(data, pos)
        wire, value, stop = tag & 7, 0, pos
        if wire == _VARINT:
            value, stop = _varint(data, pos)
        elif wire == _LENGTH:
            size, pos = _varint(data, pos)
            stop = pos + size
        else:
            stop = pos + {_FIXED64: 8, 5: 4}.get(wire, end + 1)
        if stop > end:
            raise IndexError
        yield tag >> 3, wire, value, data[pos:stop]
        pos = stop


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, pos
    raise ValueError("a number has more than 10 bytes")


def _varints(data: bytes) -> Iterator[int]:
    pos = 0
    while pos < len(data):
        value, pos = _varint(data, pos)
        yield value


def _signed(value: int) -> int:
    """The int64 of a varint."""
    return value - (1 << 64) if value >> 63 else value

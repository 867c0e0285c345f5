"""Messages of gRPC calls: measure the received bytes first, then expand and parse them.

gRPC passes on a compressed message unexpanded, so this module bounds the expanded size. A parsed message can take many
times its serialised bytes (an empty repeated field: 2 bytes become 16 or more), so the fields are counted first. The
memory for a request is reserved before it is expanded or parsed, and until its call ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from tsdb.model.errors import InvalidRequest
from tsdb.ops.home_core import all_cores
from tsdb.ops.request_bytes import RequestBytes, Reserved

GZIP = b"\x1f\x8b"  # No message begins with these bytes: they would be a field of wire type 7, which does not exist.
GZIP_BYTES_MIN = 18
COPIES = 3  # The received bytes, the parsed message, and the arrays and strings taken from it.
FIELD_BYTES = 64  # Overhead of one field of a parsed message and of its Python object, without the content.
NESTED_FACTOR = 50  # Parsed bytes per serialised byte of nested messages, at most: an empty one has 2 bytes, takes 100.
UNMEASURED_BYTES_MAX = 4096  # Smaller requests are not measured: even at the highest factor they take little memory.
_PIECE_BYTES = 1 << 20
_PLAIN = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


def unparsed(data: bytes) -> bytes:
    """For a method that reads the bytes itself, as its `request_deserializer`: only the bytes are bounded here."""
    return data


class MessageReader:
    """Reads requests of one method. bytes_max: limit of one expanded message. fields_max: of its top-level fields."""

    def __init__(
        self,
        descriptor: Descriptor,
        parse: Callable[[bytes], Any],
        held: RequestBytes,
        *,
        bytes_max: int,
        fields_max: int,
    ) -> None:
        self._name = descriptor.name
        self._parse = parse
        self._held = held
        self._bytes_max = bytes_max
        self._fields_max = fields_max
        fields = descriptor.fields
        self._nested = any(field.message_type for field in fields)
        self._plain = frozenset(field.number for field in fields if field.type in _PLAIN)
        self._repeated = [(field.number << 3) | 2 for field in fields if field.is_repeated and field.number < 16]

    def take(self, data: bytes) -> Request:
        """Reserve memory for the received bytes and expand gzip. The request is parsed later, by `Request.message`.

        Raises InvalidRequest (message_too_large, malformed_request); Overloaded when other requests hold the memory.
        """
        reserved = Reserved(self._held)
        try:
            if data.startswith(GZIP):
                declared = _declared_bytes(data)
                self._check_bytes(declared)
                reserved.set(declared * COPIES)
                with all_cores(declared):
                    data = _expanded(data)
            self._check_bytes(len(data))
            # First the lower bound: it limits how many large requests are measured at once.
            reserved.set(len(data) * COPIES)
            reserved.set(self._memory(data))
        except BaseException:
            reserved.give_back()
            raise
        return Request(data, self._parse, reserved)

    def _check_bytes(self, size: int) -> None:
        if size > self._bytes_max:
            raise _too_large(self._name, "bytes", size, self._bytes_max)

    def _memory(self, data: bytes) -> int:
        """Upper bound of the parsed request's memory, in bytes."""
        size = len(data)
        if self._parse is unparsed:
            return size * COPIES
        factor = NESTED_FACTOR if self._nested else COPIES
        fields_at_most = size // 2
        if size <= UNMEASURED_BYTES_MAX:
            return size * factor + FIELD_BYTES * fields_at_most
        if not self._nested and fields_at_most > self._fields_max:
            fields_at_most = self._repeated_at_most(data)
        if not self._nested and fields_at_most <= self._fields_max:
            return size * COPIES + FIELD_BYTES * fields_at_most
        measured = measure(data, self._plain, self._fields_max)
        if measured.fields > self._fields_max:
            raise _too_large(self._name, "fields", measured.fields, self._fields_max)
        return size * COPIES + measured.structured_bytes * factor + FIELD_BYTES * measured.fields

    def _repeated_at_most(self, data: bytes) -> int:
        """Upper bound of the number of repeated fields: bytes at any position that equal the tag of one."""
        values = np.frombuffer(data, np.uint8)
        found = 0
        for begin in range(0, len(values), _PIECE_BYTES):
            low_bits = values[begin : begin + _PIECE_BYTES] & 0x7F  # A tag may be encoded in more bytes than necessary.
            found += sum(int(np.count_nonzero(low_bits == tag)) for tag in self._repeated)
        return found


class Request:
    """One request in memory. A context manager that releases the reserved memory at its end."""

    def __init__(self, data: bytes, parse: Callable[[bytes], Any], reserved: Reserved) -> None:
        self._data = data
        self._parse = parse
        self._reserved = reserved

    def message(self) -> Any:
        """Parse the message; call it once, since it drops the bytes. Raises InvalidRequest (malformed_request)."""
        data, self._data = self._data, b""
        try:
            return self._parse(data)
        except DecodeError as error:
            raise _malformed(str(error)) from error

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *exception: object) -> None:
        self._reserved.give_back()


@dataclass(frozen=True, slots=True)
class MessageSize:
    """Number of top-level fields, and the bytes of length-delimited fields other than bytes and strings."""

    fields: int
    structured_bytes: int


def measure(data: bytes, plain: frozenset[int], fields_max: int) -> MessageSize:
    """Count the fields of a serialised message; stops at fields_max + 1. `plain`: numbers of the fields that are bytes
    or strings.

    Raises InvalidRequest (malformed_request).

    """
    position, end, fields, structured = 0, len(data), 0, 0
    try:
        while position < end and fields <= fields_max:
            tag, position = _varint(data, position)
            kind = tag & 7
            if kind == 2:
                size, position = _varint(data, position)
                position += size
                if tag >> 3 not in plain:
                    structured += size + 2
            elif kind == 0:
                _, position = _varint(data, position)
            elif kind in (1, 5):
                position += 8 if kind == 1 else 4
            else:
                raise _malformed(f"field {tag >> 3} has wire type {kind}")
            fields += 1
    except IndexError:
        raise _malformed("it ends within a field") from None
    return MessageSize(fields, structured)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, 70, 7):
        more = data[position]
        position += 1
        value |= (more & 0x7F) << shift
        if more < 0x80:
            return value, position
    raise _malformed("a number has more than 10 bytes")


def _declared_bytes(data: bytes) -> int:
    """The expanded size in the trailer of gzip data. `_expanded` refuses data that expands to another size."""
    if len(data) < GZIP_BYTES_MIN:
        raise _malformed("the gzip data is cut short")
    return int.from_bytes(data[-4:], "little")


def _expanded(data: bytes) -> bytes:
    declared = _declared_bytes(data)
    try:
        expander = zlib.decompressobj(zlib.MAX_WBITS | 16)
        expanded = expander.decompress(data, declared + 1)
    except zlib.error as error:
        raise _malformed(f"the gzip data does not expand: {error}") from error
    if len(expanded) != declared or not expander.eof:
        raise _malformed(f"the gzip data does not expand to the {declared} bytes that it declares")
    return expanded


def _too_large(name: str, what: str, got: int, limit: int) -> InvalidRequest:
    return InvalidRequest(
        f"{name} has {got} {what}{' or more' if what == 'fields' else ''}; limit is {limit}: split it",
        reason="message_too_large",
        got=got,
        limit=limit,
    )


def _malformed(text: str) -> InvalidRequest:
    return InvalidRequest(f"the request is not a valid message: {text}", reason="malformed_request")

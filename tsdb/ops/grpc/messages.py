"""Messages of gRPC calls: measure the received bytes first, then expand and parse them.

gRPC passes on a compressed message unexpanded, so this module bounds the expanded size. A parsed message can take many
times its serialised bytes (an empty repeated field: 2 bytes become 16 or more), so the fields are counted first. The
memory for a request is reserved before it is expanded or parsed, and until its call ends.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import Any

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tsdb.codec.protobuf_kernels import COUNTS, DEPTH_MAX, FIELDS, LEAF, MESSAGES, PACKED, measure_kernel
from tsdb.cpu import core_count
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.home_core import all_cores

GZIP = b"\x1f\x8b"  # No message begins with these bytes: they would be a field of wire type 7, which does not exist.
GZIP_BYTES_MIN = 18
COPIES = 3  # The received bytes, the parsed message, and the arrays and strings taken from it.
FIELD_BYTES = 64  # Overhead of one field of a parsed message and of its Python object, without the content.
MESSAGE_BYTES = 128  # Overhead of one message inside the request: an empty one takes 100.
UNMEASURED_BYTES_MAX = 4096  # Smaller requests are not measured: even the worst take little memory and time.
EXPANSION_BYTES_MIN = 1 << 16  # Smaller requests are expanded at once, in 0.1 ms.
EXPANSION_WAIT_S = 5.0
RETRY_AFTER_S = 0.5
_PLAIN = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


def unparsed(data: bytes) -> bytes:
    """For a method that reads the bytes itself, as its `request_deserializer`: only the bytes are bounded here."""
    return data


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """bytes_max: the size limit of one request, expanded. fields_max: the largest number of its fields, nested ones
    included.
    """

    bytes_max: int
    fields_max: int


class Expansions:
    """Lets a bounded number of large requests be expanded at once: half of the cores. Others wait, in no order.

    An expansion needs no GIL. Sixteen of them at once left every other thread a seventeenth of its core: reads of other
    clients took 40 times as long. Thread-safe.
    """

    def __init__(self, count: int | None = None, *, wait_s: float = EXPANSION_WAIT_S) -> None:
        self._free = BoundedSemaphore(count or max(1, core_count() // 2))
        self._wait_s = wait_s

    @contextmanager
    def one(self, size: int) -> Iterator[None]:
        """Inside the block the thread may expand data to `size` bytes, on all cores of the process.

        Raises Overloaded (expanding).
        """
        if size < EXPANSION_BYTES_MIN:
            yield
            return
        if not self._free.acquire(timeout=self._wait_s):
            raise Overloaded(
                f"other compressed requests were expanded for {self._wait_s:g} s: try again, or send smaller requests",
                reason="expanding",
                retry_after_s=RETRY_AFTER_S,
            )
        try:
            with all_cores(size):
                yield
        finally:
            self._free.release()


class MessageReader:
    """Reads requests of one method. expansions: shared with the other methods of a server."""

    def __init__(
        self,
        descriptor: Descriptor,
        parse: Callable[[bytes], Any],
        held: RequestBytes,
        limits: MessageLimits,
        expansions: Expansions | None = None,
    ) -> None:
        self._name = descriptor.name
        self._parse = parse
        self._held = held
        self._bytes_max = limits.bytes_max
        self._fields_max = limits.fields_max
        self._expansions = expansions or Expansions()
        self._kinds = field_kinds(descriptor)
        self._nested = len(self._kinds) > 1

    def take(self, data: bytes) -> Request:
        """Reserve memory for the received bytes and expand gzip. The request is parsed later, by `Request.message`.

        Raises InvalidRequest (message_too_large, malformed_request); Overloaded when other requests hold the memory
        (request_bytes), or are expanded (expanding).
        """
        reserved = Reserved(self._held)
        try:
            if data.startswith(GZIP):
                declared = _declared_bytes(data)
                self._check_bytes(declared)
                reserved.set(declared * COPIES)
                with self._expansions.one(declared):
                    data = _expanded(data)
            self._check_bytes(len(data))
            # The lower bound is reserved first. It limits how many large requests are measured at once.
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
        fields_at_most = size // 2
        if size <= UNMEASURED_BYTES_MAX or (not self._nested and fields_at_most <= self._fields_max):
            per_field = FIELD_BYTES + (MESSAGE_BYTES if self._nested else 0)
            return size * COPIES + per_field * fields_at_most
        measured = measure(data, self._kinds, self._fields_max)
        if measured.fields > self._fields_max:
            raise _too_large(self._name, "fields", measured.fields, self._fields_max)
        return size * COPIES + FIELD_BYTES * measured.fields + MESSAGE_BYTES * measured.messages


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
    """Fields of a message and of the messages in it, and the number of messages in it. A packed number is a field."""

    fields: int
    messages: int


def measure(data: bytes, kinds: NDArray[np.int32], fields_max: int) -> MessageSize:
    """Count the fields of a serialised message; stops above fields_max. `kinds`: the kinds of its descriptor, by
    `field_kinds`.

    Raises InvalidRequest (malformed_request).
    """
    counts, ends, of = np.zeros(COUNTS, np.int64), np.empty(DEPTH_MAX, np.int64), np.empty(DEPTH_MAX, np.int64)
    problem = measure_kernel(np.frombuffer(data, np.uint8), kinds, fields_max, counts, ends, of)
    if problem < 0:
        raise _malformed(f"the field at byte {~problem} breaks the format")
    return MessageSize(int(counts[FIELDS]), int(counts[MESSAGES]))


def field_kinds(descriptor: Descriptor) -> NDArray[np.int32]:
    """The kinds that `measure_kernel` needs, of a message and of all messages that it may contain."""
    found = {descriptor.full_name: descriptor}
    waiting = [descriptor]
    while waiting:
        for field in waiting.pop().fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in found:
                found[inner.full_name] = inner
                waiting.append(inner)
    index = {name: at for at, name in enumerate(found)}
    width = 1 + max((field.number for one in found.values() for field in one.fields), default=0)
    kinds = np.full((len(found), width), LEAF, np.int32)
    for at, one in enumerate(found.values()):
        for field in one.fields:
            if field.message_type is not None:
                kinds[at, field.number] = index[field.message_type.full_name]
            elif field.is_repeated and field.type not in _PLAIN:
                kinds[at, field.number] = PACKED
    return kinds


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

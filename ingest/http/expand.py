"""Expands bodies within bounds: snappy block, zstd, gzip.

The declared size is checked against the limit and reserved before anything is expanded. The output buffer has that
size, so a body that expands to another one is refused without the memory for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Protocol

import cramjam
import zstandard

from tsdb.model.errors import InvalidRequest
from tsdb.ops.byte_budget import Reserved
from tsdb.ops.home_core import all_cores

SNAPPY_RATIO_MAX = 22  # A copy of 64 bytes takes 3 bytes. A body that declares more cannot be valid.
SNAPPY_LITERAL_BYTES = 64
GZIP_BYTES_MIN = 18
USUAL_RATIO = 8  # Expected ratio of a body whose expanded size is not known yet.
STEP_BYTES = 1 << 20  # Step of an expansion to an unknown size.
ZSTD_WINDOW_MIN = 8 << 20  # Each decoder must accept windows of 8 MiB (RFC 8878, section 3.1.1.1.2).
CORRUPT = "corrupt_encoding"


class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...


def expand(encoding: str, body: bytes | bytearray, bytes_max: int, reserved: Reserved) -> bytes | bytearray:
    """`body` expanded to at most `bytes_max` bytes, which are reserved beside what is reserved already.

    Raises InvalidRequest (message_too_large, corrupt_encoding), Overloaded (request_bytes).
    """
    if encoding in ("", "identity"):
        return body
    with all_cores(len(body) * USUAL_RATIO):
        return _EXPANDERS[encoding](body, _Capacity(bytes_max, reserved))


class _Capacity:
    """The memory for one expanded body."""

    def __init__(self, bytes_max: int, reserved: Reserved) -> None:
        self.bytes_max = bytes_max
        self._reserved = reserved
        self._before = reserved.size

    def take(self, size: int) -> None:
        """Reserve `size` bytes in all. Raises InvalidRequest (message_too_large), Overloaded."""
        if size > self.bytes_max:
            raise InvalidRequest(
                f"the body expands to {size} bytes or more; limit is {self.bytes_max} (request_bytes_max): split it",
                reason="message_too_large",
                got=size,
                limit=self.bytes_max,
            )
        self._reserved.set(self._before + size)


def _snappy(body: bytes | bytearray, capacity: _Capacity) -> bytearray:
    if not body:
        raise _corrupt("snappy", "it has no byte 0")
    try:
        declared = cramjam.snappy.decompress_raw_len(body)
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", f"its length at byte 0: {error}") from error
    capacity.take(declared)
    if declared > SNAPPY_RATIO_MAX * len(body) + SNAPPY_LITERAL_BYTES:
        raise _corrupt("snappy", f"{len(body)} bytes cannot expand to the {declared} that byte 0 declares")
    expanded = bytearray(declared)
    try:
        size = cramjam.snappy.decompress_raw_into(body, expanded) if declared else 0
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", str(error)) from error
    if size != declared:
        raise _corrupt("snappy", f"it expands to {size} bytes and declares {declared}")
    return expanded


def _zstd(body: bytes | bytearray, capacity: _Capacity) -> bytes | bytearray:
    try:
        frame = zstandard.get_frame_parameters(body)
        declared = frame.content_size
        unknown = declared in (zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR)
        window = min(frame.window_size, capacity.bytes_max)
        capacity.take(window if unknown else declared)
        expander = zstandard.ZstdDecompressor(max_window_size=max(ZSTD_WINDOW_MIN, capacity.bytes_max))
        if unknown:
            return _joined(expander.stream_reader(body, read_across_frames=True), capacity, window)
        expanded = expander.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _corrupt("zstd", str(error)) from error
    if len(expanded) != declared:
        raise _corrupt("zstd", f"it expands to {len(expanded)} bytes and declares {declared}")
    return expanded


def _joined(reader: _Reader, capacity: _Capacity, least: int) -> bytearray:
    expanded = bytearray()
    while True:
        capacity.take(max(least, min(len(expanded) + STEP_BYTES, capacity.bytes_max)))
        piece = reader.read(min(STEP_BYTES, capacity.bytes_max + 1 - len(expanded)))
        if not piece:
            return expanded
        expanded += piece
        if len(expanded) > capacity.bytes_max:
            capacity.take(len(expanded))  # Raises.


def _gzip(body: bytes | bytearray, capacity: _Capacity) -> bytearray:
    """Several members are one body, as RFC 1952 says; the trailer has the size of the last one, which zlib checks."""
    if len(body) < GZIP_BYTES_MIN:
        raise _corrupt("gzip", f"it ends at byte {len(body)}, within the header or the trailer")
    declared = int.from_bytes(body[-4:], "little")
    capacity.take(declared)
    expanded, rest = bytearray(), bytes(body)
    while rest:
        expander = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not expander.eof:
            step = min(max(declared + 1 - len(expanded), STEP_BYTES), capacity.bytes_max + 1 - len(expanded))
            capacity.take(min(max(declared, len(expanded) + step), capacity.bytes_max))
            try:
                piece = expander.decompress(rest, step)
            except zlib.error as error:
                raise _corrupt("gzip", f"after byte {len(body) - len(rest)}: {error}") from error
            expanded += piece
            capacity.take(max(declared, len(expanded)))
            rest = expander.unconsumed_tail
            if not piece and not rest and not expander.eof:
                raise _corrupt("gzip", f"it ends at byte {len(body)}, within the data")
        rest = expander.unused_data
    return expanded


def _corrupt(name: str, text: str) -> InvalidRequest:
    return InvalidRequest(f"the {name} data does not expand: {text}", reason=CORRUPT)


_EXPANDERS: Mapping[str, Callable[[bytes | bytearray, _Capacity], bytes | bytearray]] = {
    "snappy": _snappy,
    "zstd": _zstd,
    "gzip": _gzip,
}
ENCODINGS = frozenset(_EXPANDERS)

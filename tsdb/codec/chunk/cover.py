"""Cover: lists the keys of the chunks that were merged into a folded chunk. Layout: docs/formats/chunk.md, versions 2
and 3. Pure.

A cover follows the columns of a folded chunk's first part and states the number of parts. A fold with fewer parts is
incomplete and covers nothing. A cover never names the fold itself. Bad bytes are CorruptData.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.sections import SECTIONS_VERSION, add_cover_section
from tsdb.codec.crc32c import crc32c
from tsdb.model.errors import CorruptData

COVERED_KEYS_MAX = 8_192  # A window of 4 h has 7,440 minutes in which a late sample of it may be accepted.
COVER_VERSION = 2  # Version of a chunk that ends with a cover; the rest is as in version 1.

KEY_BYTES_MAX = 15  # One key in a cover.

_KEY_BYTES_MIN = 3
_PARTS_MAX = (1 << 32) - 1
_ORDER_MAX = (1 << 63) - 1
_U32 = struct.Struct("<I")
_VERSION_AT = 1
_VARINT_BYTES_MAX = 10


@dataclass(frozen=True, slots=True)
class Cover:
    """parts: number of parts of the folded chunk, at least one.

    keys: the covered chunks, all of the fold's pack and window, ascending by (order, kind, part), each once, at least
    one and at most COVERED_KEYS_MAX.
    """

    parts: int
    keys: tuple[ChunkKey, ...]

    @classmethod
    def of(cls, parts: int, keys: Iterable[ChunkKey]) -> Cover:
        """A cover of keys that come in any order."""
        return cls(parts, tuple(sorted(set(keys), key=_rank)))


def cover_bytes_max(keys: int) -> int:
    """The most bytes that a cover of `keys` keys adds to a chunk."""
    return 2 * _VARINT_BYTES_MAX + keys * KEY_BYTES_MAX + _U32.size


def add_cover(chunk: bytes, cover: Cover) -> bytes:
    """A chunk without a cover, extended by one: version 1 to version 2, version 3 by a section."""
    assert 0 < len(cover.keys) <= COVERED_KEYS_MAX, f"a cover of {len(cover.keys)} keys"
    data = _cover_bytes(cover)
    if chunk[_VERSION_AT] == SECTIONS_VERSION:
        return add_cover_section(chunk, data)
    out = bytearray(chunk[: -_U32.size])
    out[_VERSION_AT] = COVER_VERSION
    out += data + _U32.pack(len(data))
    return bytes(out + _U32.pack(crc32c(bytes(out))))


def _cover_bytes(cover: Cover) -> bytes:
    out = bytearray()
    _put_varint(out, cover.parts)
    _put_varint(out, len(cover.keys))
    before = 0
    for key in cover.keys:
        _put_varint(out, key.order - before)
        out.append(key.kind)
        _put_varint(out, key.part)
        before = key.order
    return bytes(out)


def cover_place(value: bytes, end: int) -> tuple[int, int]:
    """[start, end) of the cover of a chunk of version 2 whose checksum is at `end`. Raises CorruptData
    (corrupt_chunk)."""
    at = end - _U32.size
    start = at - (_U32.unpack_from(value, at)[0] if at >= 0 else 0)
    if start <= _VERSION_AT or start >= at:
        raise CorruptData(f"chunk of {len(value)} bytes is corrupt: its cover does not fit", reason="corrupt_chunk")
    return start, at


def read_cover(value: bytes, start: int, end: int, pack_id: int, window_start_ms: int) -> Cover:
    """The cover in [start, end) of a chunk whose checksum is right. Raises CorruptData (corrupt_chunk)."""
    reader = _Reader(value, start, end)
    parts, count = reader.varint(_PARTS_MAX), reader.varint(COVERED_KEYS_MAX)
    if parts < 1 or not 0 < count <= reader.left // _KEY_BYTES_MIN:
        raise reader.corrupt(f"{count} keys and {parts} parts")
    keys: list[ChunkKey] = []
    order = 0
    for _ in range(count):
        order += reader.varint(_ORDER_MAX - order)
        kind = reader.byte()
        if kind > max(Kind):
            raise reader.corrupt(f"a key of kind {kind}")
        key = ChunkKey(pack_id, window_start_ms, Kind(kind), order, reader.varint(_PARTS_MAX))
        if keys and _rank(key) <= _rank(keys[-1]):
            raise reader.corrupt("keys out of order")
        keys.append(key)
    if reader.left:
        raise reader.corrupt(f"{reader.left} bytes too many")
    return Cover(parts, tuple(keys))


def _rank(key: ChunkKey) -> tuple[int, int, int]:
    return key.order, key.kind, key.part


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class _Reader:
    """Reads [at, end) of a chunk's bytes."""

    def __init__(self, value: bytes, at: int, end: int) -> None:
        self._value = value
        self._at = at
        self._end = end

    @property
    def left(self) -> int:
        return self._end - self._at

    def byte(self) -> int:
        if self._at >= self._end:
            raise self.corrupt("cut")
        self._at += 1
        return self._value[self._at - 1]

    def varint(self, limit: int) -> int:
        number = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise self.corrupt("an endless number")
        if number > limit:
            raise self.corrupt(f"{number} where at most {limit} may be")
        return number

    def corrupt(self, what: str) -> CorruptData:
        message = f"chunk of {len(self._value)} bytes is corrupt: its cover has {what}"
        return CorruptData(message, reason="corrupt_chunk")

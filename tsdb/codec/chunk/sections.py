"""Sections: what a chunk of version 3 has between its columns and its checksum, details and a cover. Layout:
docs/formats/chunk.md, version 3. Pure.

The end of a chunk says which sections it has, so that a reader of columns needs no look at them. Bad bytes are
CorruptData.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tsdb.codec.columns.details import Section, Tag
from tsdb.codec.crc32c import crc32c
from tsdb.model.errors import CorruptData, UnknownVersion

SECTIONS_VERSION = 3

_VERSION_AT = 1
_U32 = struct.Struct("<I")
_FLAGS = {Tag.STARTS: 1, Tag.HISTOGRAMS: 2}
_COVER = 4
_KNOWN = 7


@dataclass(frozen=True, slots=True)
class Sections:
    """columns_end: where the columns end. details: in the order of their tags. cover: [start, end) of the cover."""

    columns_end: int
    details: tuple[Section, ...]
    cover: tuple[int, int] | None


def read_sections(value: bytes) -> Sections:
    """The sections of a chunk of version 3 whose checksum is right. Raises CorruptData (corrupt_chunk), and
    UnknownVersion for a flag that a newer version has."""
    at = len(value) - _U32.size - 1
    flags = value[at]
    if flags & ~_KNOWN:
        raise UnknownVersion(f"chunk has sections {flags:#x}; this process knows {_KNOWN:#x}")
    wanted = [flag for flag in (*_FLAGS.values(), _COVER) if flags & flag]
    at -= _U32.size * len(wanted)
    if at <= _VERSION_AT or not flags & ~_COVER:
        raise _corrupt(value)
    lengths = struct.unpack_from(f"<{len(wanted)}I", value, at)
    start = at - sum(lengths)
    if start <= _VERSION_AT:
        raise _corrupt(value)
    places: dict[int, tuple[int, int]] = {}
    columns_end = start
    for flag, length in zip(wanted, lengths, strict=True):
        places[flag] = start, start + length
        start += length
    details = tuple((tag, value[slice(*places[flag])]) for tag, flag in _FLAGS.items() if flag in places)
    return Sections(columns_end, details, places.get(_COVER))


def add_details(chunk: bytes, details: Sequence[Section]) -> bytes:
    """A chunk of version 1, extended by at least one section to version 3."""
    body = bytearray(chunk[: -_U32.size])
    return _sealed(body, [(_FLAGS[tag], data) for tag, data in details])


def add_cover_section(chunk: bytes, cover: bytes) -> bytes:
    """A chunk of version 3 without a cover, extended by this cover."""
    found = read_sections(chunk)
    sections = [(_FLAGS[tag], data) for tag, data in found.details]
    return _sealed(bytearray(chunk[: found.columns_end]), [*sections, (_COVER, cover)])


def _sealed(body: bytearray, sections: Sequence[tuple[int, bytes]]) -> bytes:
    body[_VERSION_AT] = SECTIONS_VERSION
    for _, data in sections:
        body += data
    for _, data in sections:
        body += _U32.pack(len(data))
    body.append(sum(flag for flag, _ in sections))
    return bytes(body + _U32.pack(crc32c(bytes(body))))


def _corrupt(value: bytes) -> CorruptData:
    return CorruptData(f"chunk of {len(value)} bytes is corrupt: its sections do not fit", reason="corrupt_chunk")

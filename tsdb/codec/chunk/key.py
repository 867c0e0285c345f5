"""Keys of the `chunks` topic. The key decides which older record a record replaces when the topic is compacted.

Layout: docs/formats/chunk-record.md. Pure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from tsdb.model.errors import CorruptData

_CHUNK, _WINDOW, _PROGRESS, _HOLE = 1, 2, 3, 4  # First byte of each kind of key.

_CHUNK_KEY = struct.Struct("<BQqBqI")
_WINDOW_KEY = struct.Struct("<Bq")
_PROGRESS_KEY = struct.Struct("<B")
_HOLE_KEY = struct.Struct("<BQqqq")


class Kind(IntEnum):
    """The kind of a chunk, stored as one byte of its key."""

    BASE = 0  # All samples of the window below its decision offset.
    LATE = 1  # Samples of one late minute.
    IMPORT = 2
    FOLDED = 3  # A chunk that merges other chunks.


@dataclass(frozen=True, slots=True)
class ChunkKey:
    """A part of a chunk. order: the decision offset (base), the first offset of the late minute (late), or the offset
    of the run's tick (import, folded). part: counts from 0; 32 bits."""

    pack_id: int
    window_start_ms: int
    kind: Kind
    order: int
    part: int


@dataclass(frozen=True, slots=True)
class WindowKey:
    """Key of the marker of a finished window."""

    window_start_ms: int


@dataclass(frozen=True, slots=True)
class ProgressKey:
    """Key of the progress marker. Each partition of the topic has one, for itself."""


@dataclass(frozen=True, slots=True)
class HoleKey:
    """A named loss. pack_id 0: the whole partition. Times in ms, half-open. record_offset: the offset at which the loss
    was detected."""

    pack_id: int
    start_ms: int
    end_ms: int
    record_offset: int


_KIND_LAST = max(Kind)

RecordKey = ChunkKey | WindowKey | ProgressKey | HoleKey


def encode_key(key: RecordKey) -> bytes:
    """Encode a key; equal keys have equal bytes."""
    match key:
        case ChunkKey():
            return _CHUNK_KEY.pack(_CHUNK, key.pack_id, key.window_start_ms, key.kind, key.order, key.part)
        case WindowKey():
            return _WINDOW_KEY.pack(_WINDOW, key.window_start_ms)
        case ProgressKey():
            return _PROGRESS_KEY.pack(_PROGRESS)
        case HoleKey():
            return _HOLE_KEY.pack(_HOLE, key.pack_id, key.start_ms, key.end_ms, key.record_offset)


def decode_key(data: bytes) -> RecordKey:
    """Decode the key in exactly these bytes. Raises CorruptData (chunk_key)."""
    layout = _LAYOUTS.get(data[0]) if data else None
    if layout is None or len(data) != layout.size:
        raise CorruptData(f"chunk record key of {len(data)} bytes is none: {data[:40].hex()}", reason="chunk_key")
    what, *fields = layout.unpack(data)
    if what == _WINDOW:
        return WindowKey(*fields)
    if what == _PROGRESS:
        return ProgressKey()
    if what == _HOLE:
        return HoleKey(*fields)
    pack_id, window_start_ms, kind, order, part = fields
    if kind > _KIND_LAST or order < 0:
        raise CorruptData(f"chunk key of kind {kind} and order {order} is none", reason="chunk_key")
    return ChunkKey(pack_id, window_start_ms, Kind(kind), order, part)


_LAYOUTS = {_CHUNK: _CHUNK_KEY, _WINDOW: _WINDOW_KEY, _PROGRESS: _PROGRESS_KEY, _HOLE: _HOLE_KEY}

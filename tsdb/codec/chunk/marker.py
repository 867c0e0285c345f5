"""Markers and holes on the `chunks` topic: the progress of the chunk stage, and the samples it could not read.

Layout: docs/formats/chunk-record.md. Pure. Each decoder raises CorruptData (chunk_marker) for bytes that break the
format, and UnknownVersion for an undamaged record of a newer version.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tsdb.model.errors import CorruptData, UnknownVersion

VERSION = 1
WHOLE_FROM_VERSION = 2  # Version of a progress marker with whole_from. A marker without it is written as version 1.
ALWAYS_WHOLE_MS = -(1 << 60)  # whole_from of a log that was never trimmed.
TEXT_BYTES_MAX = 255

_CRC = struct.Struct("<I")
_WINDOW = struct.Struct("<BqIIQ")
_PROGRESS = struct.Struct("<Bqqq")
_PROGRESS_WHOLE_FROM = struct.Struct("<Bqqqq")
_HOLE = struct.Struct("<BIQqqq")


@dataclass(frozen=True, slots=True)
class WindowMarker:
    """A finished window: its decision offset D, and the number of packs, chunks (parts) and samples of its base."""

    decision_offset: int
    packs: int
    chunks: int
    samples: int


@dataclass(frozen=True, slots=True)
class ProgressMarker:
    """Progress of the chunk stage in one partition of the topic `topic_id`.

    Late samples below `position` are emitted, and windows that end at or before emitted_through_ms. For them, `series`
    was read up to series_end_offset. Windows that start before whole_from_ms are skipped, because the log did not have
    all of their records.
    """

    topic_id: str
    position: int
    emitted_through_ms: int
    series_end_offset: int
    whole_from_ms: int = ALWAYS_WHOLE_MS


@dataclass(frozen=True, slots=True)
class HoleRecord:
    """Samples of [start_ms, end_ms) of a partition, or of one pack of it (pack_id 0: any), may be lost."""

    partition: int
    pack_id: int
    start_ms: int
    end_ms: int
    reason: str
    record_offset: int


def encode_window_marker(marker: WindowMarker) -> bytes:
    """Value of the record at WindowKey."""
    return _sealed(_WINDOW.pack(VERSION, marker.decision_offset, marker.packs, marker.chunks, marker.samples))


def decode_window_marker(value: bytes) -> WindowMarker:
    """Decode the marker in exactly these bytes."""
    body = _opened("window marker", value, _WINDOW.size, 0)
    return WindowMarker(*_WINDOW.unpack(body)[1:])


def encode_progress_marker(marker: ProgressMarker) -> bytes:
    """Value of the record at ProgressKey."""
    fields = (marker.position, marker.emitted_through_ms, marker.series_end_offset)
    if marker.whole_from_ms == ALWAYS_WHOLE_MS:
        packed = _PROGRESS.pack(VERSION, *fields)
    else:
        packed = _PROGRESS_WHOLE_FROM.pack(WHOLE_FROM_VERSION, *fields, marker.whole_from_ms)
    return _sealed(packed + _text("topic id", marker.topic_id))


def decode_progress_marker(value: bytes) -> ProgressMarker:
    """Decode the marker in exactly these bytes."""
    layout = _PROGRESS_WHOLE_FROM if value[:1] == bytes([WHOLE_FROM_VERSION]) else _PROGRESS
    body = _opened("progress marker", value, layout.size, TEXT_BYTES_MAX, WHOLE_FROM_VERSION)
    _, position, emitted_through_ms, series_end_offset, *whole_from_ms = layout.unpack_from(body)
    topic_id = _decoded_text("progress marker", body[layout.size :])
    return ProgressMarker(topic_id, position, emitted_through_ms, series_end_offset, *whole_from_ms)


def encode_hole(hole: HoleRecord) -> bytes:
    """Value of the record at HoleKey."""
    fields = _HOLE.pack(VERSION, hole.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.record_offset)
    return _sealed(fields + _text("reason", hole.reason))


def decode_hole(value: bytes) -> HoleRecord:
    """Decode the hole in exactly these bytes."""
    body = _opened("hole", value, _HOLE.size, TEXT_BYTES_MAX)
    _, partition, pack_id, start_ms, end_ms, record_offset = _HOLE.unpack_from(body)
    return HoleRecord(partition, pack_id, start_ms, end_ms, _decoded_text("hole", body[_HOLE.size :]), record_offset)


def _sealed(body: bytes) -> bytes:
    return body + _CRC.pack(_crc32c(body))


def _opened(what: str, value: bytes, fixed: int, text_max: int, version_max: int = VERSION) -> bytes:
    """Check checksum, version and size. Returns the bytes before the checksum."""
    body = value[: -_CRC.size]
    if len(value) <= _CRC.size or _CRC.pack(_crc32c(body)) != value[-_CRC.size :]:
        raise CorruptData(f"{what} of {len(value)} bytes has a wrong checksum", reason="chunk_marker")
    if not VERSION <= body[0] <= version_max:
        raise UnknownVersion(f"{what} is of version {body[0]}; this process knows {version_max}")
    if not fixed <= len(body) <= fixed + text_max:
        raise CorruptData(
            f"{what} has {len(body)} bytes before its checksum; want {fixed} to {fixed + text_max}",
            reason="chunk_marker",
        )
    return body


def _text(what: str, text: str) -> bytes:
    data = text.encode()
    assert len(data) <= TEXT_BYTES_MAX, f"{what} of {len(data)} bytes; limit is {TEXT_BYTES_MAX}"
    return data


def _decoded_text(what: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptData(f"{what} has text that is not UTF-8: {data[:40]!r}", reason="chunk_marker") from error


def _crc32c(data: bytes) -> int:
    # The client loads this module for HoleRecord, and kernels are half of what a small command would load.
    from tsdb.codec.crc32c import crc32c

    return crc32c(data)

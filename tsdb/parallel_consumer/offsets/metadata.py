"""Commit metadata: encodes finished offsets above the committed one, and attempts of unfinished records.

Layout: docs/formats/commit-metadata.md, versions 1 and 2. Pure. Metadata is either decoded exactly or refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.parallel_consumer.errors import MetadataRefused
from tsdb.parallel_consumer.offsets.runs import decode_runs, encode_runs, read_varint, write_varint
from tsdb.parallel_consumer.offsets.text import capacity_bytes, from_text, to_text
from tsdb.parallel_consumer.offsets.tracker import NO_RUNS
from tsdb.parallel_consumer.options import UNITS_MAX

VERSION = 1
# Written only where a range of offsets was tried as one, so that consumers without columns can still be downgraded.
VERSION_SPANS = 2
TOPIC_ID_BYTES_MAX = 64
ATTEMPTS_BYTES_MAX = 640
_CRC_BYTES = 4
_FIXED_BYTES = 2 + 1 + TOPIC_ID_BYTES_MAX + 3 + ATTEMPTS_BYTES_MAX + 3 + _CRC_BYTES


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Attempts of an unfinished record. failures: attempts that ended with an exception. crashes: attempts in which the
    process ended.

    running: whether it was being handled at the commit. span: number of offsets, from `offset` on, that were tried
    together as a block of columns.

    """

    offset: int
    failures: int = 0
    crashes: int = 0
    running: bool = False
    span: int = 1

    @property
    def end(self) -> int:
        """The first offset after the span."""
        return self.offset + self.span


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Content of a commit beside its offset. finished: runs [start, end), int64 (k, 2), none below that offset."""

    finished: NDArray[np.int64] = field(default_factory=lambda: NO_RUNS)
    attempts: Sequence[AttemptCounts] = ()


def map_bytes_max(units_max: int = UNITS_MAX) -> int:
    """Bytes available to the map of finished offsets in metadata of `units_max` UTF-16 units."""
    return capacity_bytes(units_max) - _FIXED_BYTES


def encode_metadata(position: int, progress: CommitMetadata, topic_id: str, *, units_max: int = UNITS_MAX) -> str:
    """Encode the metadata as text of at most units_max UTF-16 units.

    Attempts that do not fit into ATTEMPTS_BYTES_MAX are left out, the lowest counts first. These counts start again at
    0.

    """
    form, data = encode_runs(position, progress.finished)
    assert len(data) <= map_bytes_max(units_max), f"offset map of {len(data)} bytes: intake must stop before"
    version = VERSION_SPANS if any(one.span > 1 for one in progress.attempts) else VERSION
    body = bytearray((version, form))
    identity = topic_id.encode()
    assert len(identity) <= TOPIC_ID_BYTES_MAX, f"topic id of {len(identity)} bytes"
    body.append(len(identity))
    body += identity
    attempts = _encode_attempts(position, progress.attempts, version)
    write_varint(len(attempts), body)
    body += attempts + data
    return to_text(bytes(body) + _checksum(position, body), units_max)


def decode_metadata(position: int, text: str, topic_id: str) -> CommitMetadata:
    """Content of the commit of `position`. Empty text, a commit of another tool, decodes as empty.

    Raises MetadataRefused (malformed, bad_checksum, unknown_version, wrong_topic).
    """
    if not text:
        return CommitMetadata()
    data = from_text(text)
    body, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if len(body) < 4:
        raise MetadataRefused(f"metadata of {len(data)} bytes is too short")
    if crc != _checksum(position, body):
        raise MetadataRefused(f"metadata does not fit its checksum and offset {position}", reason="bad_checksum")
    if body[0] not in (VERSION, VERSION_SPANS):
        message = f"metadata is of version {body[0]}; this consumer knows {VERSION} and {VERSION_SPANS}"
        raise MetadataRefused(message, reason="unknown_version")
    return _decode_body(position, body, topic_id)


def _decode_body(position: int, body: bytes, topic_id: str) -> CommitMetadata:
    at = 3 + body[2]
    identity = body[3:at].decode(errors="replace")
    if identity != topic_id:
        message = (
            f"the commit is of topic id {identity}, the topic has id {topic_id}: it was made anew; set the group's"
            " offsets (kafka-consumer-groups --reset-offsets --to-earliest reads it whole)"
        )
        raise MetadataRefused(message, reason="wrong_topic")
    length, at = read_varint(body, at)
    if length > len(body) - at:
        raise MetadataRefused(f"metadata claims {length} bytes of attempts and has {len(body) - at}")
    attempts = _decode_attempts(position, body[at : at + length], body[0])
    return CommitMetadata(decode_runs(position, body[1], body[at + length :]), attempts)


def _encode_attempts(position: int, attempts: Sequence[AttemptCounts], version: int) -> bytes:
    out = bytearray()
    chosen: list[AttemptCounts] = []
    size = 0
    for one in sorted(attempts, key=lambda one: (-one.crashes, -one.running, -one.failures, one.offset)):
        size += len(_encode_one(one.offset - position, one, version))
        if size > ATTEMPTS_BYTES_MAX:
            break
        chosen.append(one)
    for one in sorted(chosen, key=lambda one: one.offset):
        out += _encode_one(one.offset - position, one, version)
    return bytes(out)


def _encode_one(distance: int, one: AttemptCounts, version: int) -> bytearray:
    out = bytearray()
    write_varint(distance, out)
    write_varint(one.failures << 1 | one.running, out)
    write_varint(one.crashes, out)
    if version == VERSION_SPANS:
        write_varint(one.span, out)
    return out


def _decode_attempts(position: int, data: bytes, version: int) -> list[AttemptCounts]:
    found: list[AttemptCounts] = []
    at = 0
    while at < len(data):
        distance, at = read_varint(data, at)
        failures, at = read_varint(data, at)
        crashes, at = read_varint(data, at)
        span, at = read_varint(data, at) if version == VERSION_SPANS else (1, at)
        if span == 0:
            raise MetadataRefused(f"attempts without an offset at {position + distance}")
        found.append(AttemptCounts(position + distance, failures >> 1, crashes, bool(failures & 1), span))
    return found


def _checksum(position: int, body: bytes | bytearray) -> bytes:
    # The checksum covers the offset too, so metadata that a tool moved to another offset is refused.
    return zlib.crc32(bytes(body), zlib.crc32(position.to_bytes(8, "little"))).to_bytes(_CRC_BYTES, "little")

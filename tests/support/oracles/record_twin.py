"""The log record in plain Python, from docs/formats/log-record.md alone: the oracle of its kernels."""

from __future__ import annotations

import struct
from dataclasses import dataclass

MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Pack:
    pack_id: int
    samples: tuple[tuple[int, int, int], ...]  # (series_id, ts_ms, bits of the float64), in order.


def _of_byte(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_OF_BYTES = [_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _OF_BYTES[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def sealed(body: bytes) -> bytes:
    """A body with its right checksum."""
    return body + struct.pack("<I", crc32c(body))


def id_vector_hash(ids: list[int]) -> int:
    total = 0
    for index, series_id in enumerate(ids, start=1):
        word = ((series_id ^ (index * 0xC2B2AE3D27D4EB4F & MASK)) * 0x9E3779B185EBCA87) & MASK
        word ^= word >> 32
        total = (total + word * 0x165667B19E3779F9) & MASK
    total ^= len(ids)
    total ^= total >> 29
    total = (total * 0x9E3779B185EBCA87) & MASK
    return total ^ (total >> 32)


def header(*, version: int = 1, flags: int = 0, reserved: int = 0, k: int = 0, n: int = 0, base: int = 0) -> bytes:
    return struct.pack("<4sBBHIIq", b"KTLR", version, flags, reserved, k, n, base)


def encode(packs: list[Pack], *, import_tick: bool = False) -> bytes:
    samples = [sample for pack in packs for sample in pack.samples]
    times = [ts_ms for _, ts_ms, _ in samples]
    base = min(times, default=0)
    shared = bool(times) and max(times) == base
    flags = int(shared) | (2 if import_tick else 0)
    hashes = [id_vector_hash([series_id for series_id, _, _ in pack.samples]) for pack in packs]
    columns = [
        ("Q", [pack.pack_id for pack in packs]),
        ("Q", hashes),
        ("Q", [series_id for series_id, _, _ in samples]),
        ("Q", [bits for _, _, bits in samples]),
        ("I", [len(pack.samples) for pack in packs]),
        ("I", [] if shared else [ts_ms - base for ts_ms in times]),
    ]
    body = header(flags=flags, k=len(packs), n=len(samples), base=base)
    return sealed(body + b"".join(struct.pack(f"<{len(column)}{code}", *column) for code, column in columns))


def decode(data: bytes) -> list[Pack] | None:
    """The packs of a sound record of version 1, else None. Slow, checks as the document says."""
    if not 28 <= len(data) <= 1 << 20 or struct.unpack("<I", data[-4:])[0] != crc32c(data[:-4]):
        return None
    magic, version, flags, reserved, k, n, base = struct.unpack_from("<4sBBHIIq", data)
    shared = bool(flags & 1)
    if (magic, version, reserved) != (b"KTLR", 1, 0) or flags > 3:
        return None
    if len(data) != 28 + 20 * k + (16 if shared else 20) * n:
        return None
    if n == 0:
        return [] if k == 0 and base == 0 and not shared else None
    at = 24
    pack_ids, at = _column(data, at, k, "Q")
    _, at = _column(data, at, k, "Q")
    series_ids, at = _column(data, at, n, "Q")
    values, at = _column(data, at, n, "Q")
    lengths, at = _column(data, at, k, "I")
    deltas = _column(data, at, n, "I")[0] if not shared else [0] * n
    if flags & 2 or 0 in lengths or sum(lengths) != n or base + max(deltas) >= 1 << 63:
        return None
    samples = [
        (series_id, base + delta, bits) for series_id, delta, bits in zip(series_ids, deltas, values, strict=True)
    ]
    ends = [sum(lengths[: index + 1]) for index in range(k)]
    return [
        Pack(pack_id, tuple(samples[end - length : end]))
        for pack_id, length, end in zip(pack_ids, lengths, ends, strict=True)
    ]


def _column(data: bytes, at: int, count: int, code: str) -> tuple[list[int], int]:
    column = struct.Struct(f"<{count}{code}")
    return list(column.unpack_from(data, at)), at + column.size

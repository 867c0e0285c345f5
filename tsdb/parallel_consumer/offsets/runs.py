"""Encodes runs of finished offsets as alternating lengths or a bitset, plain or with zstd, whichever is smallest.

Layout: docs/formats/commit-metadata.md. Pure. The bitset bounds the size: any pattern fits into `span / 8` bytes.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import zstandard
from numpy.typing import NDArray

from tsdb.parallel_consumer.errors import MetadataRefused

# Bound of an unpacked map. Every written map is far smaller, and an allocation of this size does no harm.
RAW_BYTES_MAX = 1 << 16
OFFSET_LIMIT = 1 << 62
ZSTD_FROM_BYTES = 48  # Below this the zstd frame costs more than it saves.
ZSTD_LEVEL = 6


class OffsetEncoding(IntEnum):
    EMPTY = 0
    LENGTHS = 1
    BITSET = 2
    LENGTHS_ZSTD = 3
    BITSET_ZSTD = 4


def encode_runs(position: int, runs: NDArray[np.int64]) -> tuple[OffsetEncoding, bytes]:
    """The smallest form of runs, int64 (k, 2): [start, end) of finished offsets, ascending, apart, none below position.

    A run may begin at position itself.
    """
    if not len(runs):
        return OffsetEncoding.EMPTY, b""
    span = int(runs[-1, 1]) - position
    candidates: list[tuple[OffsetEncoding, bytes]] = []
    if span <= 8 * RAW_BYTES_MAX:
        candidates.append((OffsetEncoding.BITSET, _bitset(position, runs, span)))
    # Lengths take at least two bytes a run. With this many runs a bitset is smaller, and lengths are slow to write.
    if not candidates or len(runs) <= len(candidates[0][1]):
        candidates.append((OffsetEncoding.LENGTHS, _lengths(position, runs)))
    packed = [(OffsetEncoding(form + 2), _compress(data)) for form, data in candidates if len(data) >= ZSTD_FROM_BYTES]
    return min(candidates + packed, key=lambda candidate: len(candidate[1]))


def decode_runs(position: int, form: int, data: bytes) -> NDArray[np.int64]:
    """The runs, int64 (k, 2). Raises MetadataRefused (malformed)."""
    if form == OffsetEncoding.EMPTY and not data:
        return np.empty((0, 2), np.int64)
    if form in (OffsetEncoding.LENGTHS_ZSTD, OffsetEncoding.BITSET_ZSTD):
        data, form = _decompress(data), form - 2
    if not data or form not in (OffsetEncoding.LENGTHS, OffsetEncoding.BITSET):
        raise MetadataRefused(f"offset map of form {form} with {len(data)} bytes")
    runs = _from_lengths(position, data) if form == OffsetEncoding.LENGTHS else _from_bitset(position, data)
    if not len(runs) or int(runs[-1, 1]) > OFFSET_LIMIT:
        raise MetadataRefused("offset map without runs, or beyond any offset")
    return runs


def write_varint(value: int, out: bytearray) -> None:
    """Append an integer of at least 0 as LEB128."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (value, end index). Raises MetadataRefused (malformed) for a value that is cut off or
    above OFFSET_LIMIT.
    """
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > OFFSET_LIMIT:
                break
            return value, at
        shift += 7
    raise MetadataRefused(f"number cut off or too large at byte {at} of {len(data)}")


def _lengths(position: int, runs: NDArray[np.int64]) -> bytes:
    lengths = np.diff(runs.ravel(), prepend=position)
    if int(lengths.max()) < 0x80:
        return lengths.astype(np.uint8).tobytes()
    out = bytearray()
    for length in lengths.tolist():
        write_varint(length, out)
    return bytes(out)


def _from_lengths(position: int, data: bytes) -> NDArray[np.int64]:
    edges: list[int] = []
    at, edge = 0, position
    while at < len(data):
        length, at = read_varint(data, at)
        if length == 0 and edges:
            raise MetadataRefused("offset map with an empty run")
        edge += length
        if edge > OFFSET_LIMIT:
            raise MetadataRefused("offset map beyond any offset")
        edges.append(edge)
    if len(edges) % 2:
        raise MetadataRefused("offset map that ends within a gap")
    return np.array(edges, np.int64).reshape(-1, 2)


def _bitset(position: int, runs: NDArray[np.int64], span: int) -> bytes:
    edges = np.zeros(span + 1, np.int8)
    edges[runs[:, 0] - position] = 1
    edges[runs[:, 1] - position] = -1
    return np.packbits(np.cumsum(edges[:-1], dtype=np.int8).view(np.uint8), bitorder="little").tobytes()


def _from_bitset(position: int, data: bytes) -> NDArray[np.int64]:
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(np.int8)
    edges = np.flatnonzero(np.diff(bits, prepend=np.int8(0), append=np.int8(0)))
    return edges.astype(np.int64).reshape(-1, 2) + position


def _compress(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=False).compress(data)


def _decompress(data: bytes) -> bytes:
    try:
        # The frame declares its unpacked size, and the library would allocate that much.
        size = zstandard.frame_content_size(data)
        if not 0 < size <= RAW_BYTES_MAX:
            raise MetadataRefused(f"offset map unpacks to {size} bytes; the limit is {RAW_BYTES_MAX}")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=RAW_BYTES_MAX)
    except zstandard.ZstdError as error:
        raise MetadataRefused(f"offset map does not unpack: {error}") from error

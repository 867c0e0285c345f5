"""Encodes bytes as text for commit metadata: base64 while that fits, otherwise 14 bits in each character.

Brokers count UTF-16 units, not bytes. CJK ideographs U+4E00 to U+8DFF are one unit each and valid in UTF-8, so 7,166
bytes fit into 4,095 units. Layout: docs/formats/commit-metadata.md. Pure.
"""

from __future__ import annotations

import base64
import binascii

import numpy as np

from tsdb.parallel_consumer.errors import MetadataRefused

WIDE_FIRST = 0x4E00
WIDE_BITS = 14
_WIDE_END = WIDE_FIRST + (1 << WIDE_BITS)
_LENGTH_BYTES = 2


def capacity_bytes(units: int) -> int:
    """The largest byte count that always fits the given number of UTF-16 units."""
    return max(0, units * WIDE_BITS // 8 - _LENGTH_BYTES)


def to_text(data: bytes, units_max: int) -> str:
    """Encode bytes as at most units_max characters of the basic plane. data: at most
    capacity_bytes(units_max) bytes.
    """
    assert len(data) <= capacity_bytes(units_max), f"{len(data)} bytes do not fit {units_max} characters"
    plain = base64.b64encode(data).decode()
    return plain if len(plain) <= units_max else _wide(data)


def from_text(text: str) -> bytes:
    """Inverse of to_text. Raises MetadataRefused (malformed)."""
    if text and ord(text[0]) >= WIDE_FIRST:
        return _from_wide(text)
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise MetadataRefused(f"metadata of another program: {error}") from error


def _wide(data: bytes) -> str:
    framed = len(data).to_bytes(_LENGTH_BYTES, "little") + data
    bits = np.unpackbits(np.frombuffer(framed, np.uint8))
    padded = np.append(bits, np.zeros(-len(bits) % WIDE_BITS, np.uint8)).reshape(-1, WIDE_BITS)
    codes = padded @ (1 << np.arange(WIDE_BITS - 1, -1, -1)) + WIDE_FIRST
    return codes.astype("<u2").tobytes().decode("utf-16-le")


def _from_wide(text: str) -> bytes:
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").astype(np.int64)
    if ((units < WIDE_FIRST) | (units >= _WIDE_END)).any():
        raise MetadataRefused("metadata mixes alphabets")
    bits = (units - WIDE_FIRST)[:, None] >> np.arange(WIDE_BITS - 1, -1, -1) & 1
    framed = np.packbits(bits.astype(np.uint8).ravel()).tobytes()
    length = int.from_bytes(framed[:_LENGTH_BYTES], "little")
    if length > len(framed) - _LENGTH_BYTES:
        raise MetadataRefused(f"metadata claims {length} bytes and has {len(framed) - _LENGTH_BYTES}")
    return framed[_LENGTH_BYTES : _LENGTH_BYTES + length]

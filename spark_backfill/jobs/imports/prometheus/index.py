"""Index of a block: reads its symbols, and each series with its labels and the references of its chunks.

ByteCursor reads numbers from the bytes of a block, never past their end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tsdb.codec.crc32c import crc32c
from tsdb.model.errors import CorruptData, UnknownVersion

_U32, _U64 = struct.Struct(">I"), struct.Struct(">Q")
VARINT_BYTES_MAX = 10

MAGIC, VERSION = 0xBAAA_D700, 2
HEADER_BYTES, TOC_BYTES = 5, 52
SERIES_ALIGN = 16
LABELS_MAX = 1_000  # We accept 64 labels; a count far above that is corrupt data.


class ByteCursor:
    """Reads `data` from `at` up to `end`. name: file name for messages. Raises CorruptData (corrupt_block)."""

    def __init__(self, data: memoryview, name: str, at: int, end: int) -> None:
        if not 0 <= at <= end <= len(data):
            raise CorruptData(f"{name}: [{at}, {end}) is not in its {len(data)} bytes", reason="corrupt_block")
        self.data = data
        self.name = name
        self.at = at
        self.end = end

    def u32(self) -> int:
        """The next 4 bytes, big-endian."""
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        """The next 8 bytes, big-endian."""
        return int(_U64.unpack(self.take(8))[0])

    def uvarint(self) -> int:
        """The next number: little-endian groups of 7 bits, at most 64 bits."""
        number = 0
        for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number >> 64:
                    break
                return number
        raise self.corrupt("a number of over 64 bits")

    def varint(self) -> int:
        """A signed number: a uvarint in zigzag encoding."""
        number = self.uvarint()
        return (number >> 1) ^ -(number & 1)

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, sharing memory."""
        if size > self.end - self.at:
            raise self.corrupt(f"{size} bytes are wanted, {self.end - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def section(self, size: int) -> ByteCursor:
        """A cursor over the next `size` bytes, after checking the CRC-32C that follows them."""
        start = self.at
        if crc32c(bytes(self.take(size))) != self.u32():
            raise CorruptData(f"{self.name}: wrong checksum of [{start}, {start + size})", reason="corrupt_block")
        return ByteCursor(self.data, self.name, start, start + size)

    def corrupt(self, what: str) -> CorruptData:
        """Make an error with file name and position; the caller raises it."""
        return CorruptData(f"{self.name}: at byte {self.at}: {what}", reason="corrupt_block")


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A chunk with samples of [min_ms, max_ms], both included, at `offset` of segment file number `segment`, from 0."""

    min_ms: int
    max_ms: int
    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class BlockSeries:
    """number: the id that tombstones use. labels: (name, value) pairs in the order of the index."""

    number: int
    labels: tuple[tuple[str, str], ...]
    chunks: tuple[ChunkRef, ...]


class BlockIndex:
    """Reads the bytes of an `index` file. Raises CorruptData (corrupt_block), UnknownVersion."""

    def __init__(self, data: memoryview, name: str) -> None:
        self._data = data
        self._name = name
        head = ByteCursor(data, name, 0, min(HEADER_BYTES, len(data)))
        if head.u32() != MAGIC:
            raise head.corrupt("no index of Prometheus")
        version = head.take(1)[0]
        if version != VERSION:
            raise UnknownVersion(f"{name}: index is of version {version}; this process knows {VERSION}")
        # Symbols, series, label indices, label offsets, postings, postings offsets; 0 for an absent section.
        contents = ByteCursor(data, name, max(len(data) - TOC_BYTES, 0), len(data)).section(TOC_BYTES - 4)
        starts = [contents.u64() for _ in range(6)]
        self._symbols_at = starts[0]
        self._series_at = starts[1]
        self._series_end = min([at for at in starts if at > starts[1]], default=len(data) - TOC_BYTES)

    def series(self) -> Iterator[BlockSeries]:
        """Every series, in the order of the index."""
        at = self._series_at
        while at < self._series_end:
            at = -(-at // SERIES_ALIGN) * SERIES_ALIGN
            if at >= self._series_end:
                return
            cursor = ByteCursor(self._data, self._name, at, self._series_end)
            size = cursor.uvarint()
            if not size:
                return  # Only padding follows.
            yield self._one(at // SERIES_ALIGN, cursor.section(size))
            at = cursor.at

    def chunks(self, number: int) -> tuple[ChunkRef, ...]:
        """The chunks of the series with this number, without its labels."""
        cursor = ByteCursor(self._data, self._name, number * SERIES_ALIGN, self._series_end)
        body = cursor.section(cursor.uvarint())
        for _ in range(2 * body.uvarint()):
            body.uvarint()
        return tuple(_chunks(body))

    @cached_property
    def _symbols(self) -> list[str]:
        cursor = ByteCursor(self._data, self._name, self._symbols_at, len(self._data))
        body = cursor.section(cursor.u32())
        count = body.u32()
        if count > body.end - body.at:
            raise body.corrupt(f"{count} symbols in {body.end - body.at} bytes")
        return [self._text(body) for _ in range(count)]

    def _one(self, number: int, body: ByteCursor) -> BlockSeries:
        count = body.uvarint()
        if count > LABELS_MAX:
            raise body.corrupt(f"a series of {count} labels")
        labels = tuple((self._symbol(body), self._symbol(body)) for _ in range(count))
        return BlockSeries(number, labels, tuple(_chunks(body)))

    def _symbol(self, body: ByteCursor) -> str:
        number = body.uvarint()
        if number >= len(self._symbols):
            raise body.corrupt(f"symbol {number} of {len(self._symbols)}")
        return self._symbols[number]

    def _text(self, body: ByteCursor) -> str:
        try:
            return bytes(body.take(body.uvarint())).decode()
        except UnicodeDecodeError:
            raise body.corrupt("a symbol that is not UTF-8") from None


def _chunks(body: ByteCursor) -> Iterator[ChunkRef]:
    count = body.uvarint()
    if count > body.end - body.at:
        raise body.corrupt(f"{count} chunks in {body.end - body.at} bytes")
    max_ms = ref = 0
    for number in range(count):
        min_ms = max_ms + body.uvarint() if number else body.varint()
        max_ms = min_ms + body.uvarint()
        ref += body.varint() if number else body.uvarint()
        if not 0 <= ref < 1 << 64:
            raise body.corrupt("a chunk that is nowhere")
        yield ChunkRef(min_ms, max_ms, ref >> 32, ref & 0xFFFF_FFFF)

"""ByteCursor: reads numbers from the bytes of a block, never past their end."""

from __future__ import annotations

import struct

from tsdb.codec.crc32c import crc32c
from tsdb.model.errors import CorruptData

_U32, _U64 = struct.Struct(">I"), struct.Struct(">Q")
VARINT_BYTES_MAX = 10


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

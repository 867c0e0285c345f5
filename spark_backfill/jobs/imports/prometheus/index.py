"""Index of a block: reads its symbols, and each series with its labels and the references of its chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_backfill.jobs.imports.prometheus.cursor import ByteCursor
from tsdb.model.errors import UnknownVersion

MAGIC, VERSION = 0xBAAA_D700, 2
HEADER_BYTES, TOC_BYTES = 5, 52
SERIES_ALIGN = 16
LABELS_MAX = 1_000  # We accept 64 labels; a count far above that is corrupt data.


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
        self._series_at = starts[1]
        self._series_end = min([at for at in starts if at > starts[1]], default=len(data) - TOC_BYTES)
        self._symbols = self._read_symbols(starts[0])

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

    def _read_symbols(self, at: int) -> list[str]:
        cursor = ByteCursor(self._data, self._name, at, len(self._data))
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

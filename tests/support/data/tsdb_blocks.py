"""Blocks of Prometheus, written for tests: bit by bit as the format is described, with no code of the reader."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tsdb.model.histograms import HistogramShape

Sample = tuple[int, float]
Labels = Mapping[str, str]
CHUNK_SAMPLES = 120
Chunk = tuple[int, bytes]  # (encoding, data)
UNKNOWN_SCHEMA: Chunk = 2, bytes((0, 1, 0, 0, 0b11000100, 0b10000000))  # One histogram of schema 9.
GOLDEN = Path(__file__).parents[2] / "golden" / "prometheus" / "histogram_chunks.json"


@dataclass(frozen=True)
class GoldenChunk:
    """A chunk that Prometheus 3.15's chunkenc wrote, and its samples. samples: ts_ms, start_ms, sum (bits as hex),
    stale, and of others count, zero, buckets."""

    kind: str
    chunk: Chunk
    shape: HistogramShape
    samples: list[dict[str, Any]]

    @property
    def floats(self) -> list[Sample]:
        """Times and sums of the samples, as `write_block` takes them."""
        return [(one["ts_ms"], struct.unpack(">d", bytes.fromhex(one["sum"]))[0]) for one in self.samples]


def golden_chunks() -> list[GoldenChunk]:
    """One of each encoding, of custom bounds and of gauges; the last sample of each is a stale marker."""
    found = []
    for one in json.loads(GOLDEN.read_text()):
        positive, negative = (tuple((offset, size) for offset, size in one[side]) for side in ("positive", "negative"))
        shape = HistogramShape(one["schema"], one["zero_threshold"], positive, negative, tuple(one["bounds"] or ()))
        found.append(GoldenChunk(one["kind"], (one["encoding"], bytes.fromhex(one["data"])), shape, one["samples"]))
    return found


class Bits:
    """A string of bits that grows."""

    def __init__(self) -> None:
        self.text = ""

    def add(self, number: int, size: int) -> None:
        self.text += format(number & ((1 << size) - 1), f"0{size}b")

    def done(self) -> bytes:
        padded = self.text + "0" * (-len(self.text) % 8)
        return bytes(int(padded[at : at + 8], 2) for at in range(0, len(padded), 8))


def uvarint(number: int) -> bytes:
    made = bytearray()
    while number >= 0x80:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def varint(number: int) -> bytes:
    return uvarint((number << 1) ^ (number >> 63))


def crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return struct.pack(">I", crc ^ 0xFFFFFFFF)


def bits_of(value: float) -> int:
    return int(struct.unpack(">Q", struct.pack(">d", value))[0])


def xor_chunk(samples: Sequence[Sample]) -> bytes:
    """The data of one chunk, without length, encoding and checksum."""
    bits = Bits()
    bits.add(len(samples), 16)
    before_ms, interval, before, leading, trailing = 0, 0, 0, 255, 0
    for n, (ts_ms, value) in enumerate(samples):
        now = bits_of(value)
        if n == 0:
            for byte in varint(ts_ms):
                bits.add(byte, 8)
            bits.add(now, 64)
        else:
            if n == 1:
                interval = ts_ms - before_ms
                for byte in uvarint(interval):
                    bits.add(byte, 8)
            else:
                change = ts_ms - before_ms - interval
                interval += change
                _add_change(bits, change)
            leading, trailing = _add_value(bits, now ^ before, leading, trailing)
        before_ms, before = ts_ms, now
    return bits.done()


def _add_change(bits: Bits, change: int) -> None:
    if change == 0:
        bits.add(0, 1)
        return
    for prefix, prefix_bits, size in ((0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)):
        if -((1 << (size - 1)) - 1) <= change <= 1 << (size - 1):
            bits.add(prefix, prefix_bits)
            bits.add(change, size)
            return
    bits.add(0b1111, 4)
    bits.add(change, 64)


def _add_value(bits: Bits, difference: int, leading: int, trailing: int) -> tuple[int, int]:
    if difference == 0:
        bits.add(0, 1)
        return leading, trailing
    bits.add(1, 1)
    new_leading = min(64 - difference.bit_length(), 31)
    new_trailing = (difference & -difference).bit_length() - 1
    if leading != 255 and new_leading >= leading and new_trailing >= trailing:
        bits.add(0, 1)
    else:
        leading, trailing = new_leading, new_trailing
        size = 64 - leading - trailing
        bits.add(1, 1)
        bits.add(leading, 5)
        bits.add(size % 64, 6)
    bits.add(difference >> trailing, 64 - leading - trailing)
    return leading, trailing


def write_block(
    folder: Path,
    series: Sequence[tuple[Labels, Sequence[Sample]]],
    *,
    deleted: Mapping[int, tuple[int, int]] | None = None,
    histograms: Mapping[int, Chunk] | None = None,
) -> Path:
    """A block with an index, one segment, and tombstones. deleted: by place in `series`, [first, last], both included.

    histograms: by place in `series`, a chunk of native histograms in place of those of the samples, whose times it has.
    """
    (folder / "chunks").mkdir(parents=True)
    segment = bytearray(struct.pack(">IBxxx", 0x85BD40DD, 1))
    refs: list[list[tuple[int, int, int]]] = []
    for place, (_, samples) in enumerate(series):
        refs.append([])
        given = (histograms or {}).get(place)
        for at in range(0, len(samples), CHUNK_SAMPLES):
            part = samples[at : at + CHUNK_SAMPLES]
            encoding, data = given or (1, xor_chunk(part))
            encoded = bytes([encoding]) + data
            refs[-1].append((part[0][0], part[-1][0], len(segment)))
            segment += uvarint(len(data)) + encoded + crc32c(encoded)
    (folder / "chunks" / "000001").write_bytes(bytes(segment))
    index, numbers = _index(series, refs)
    (folder / "index").write_bytes(index)
    stones = b"".join(
        uvarint(numbers[place]) + varint(first) + varint(last) for place, (first, last) in (deleted or {}).items()
    )
    (folder / "tombstones").write_bytes(struct.pack(">IB", 0x0130BA30, 1) + stones + crc32c(stones))
    (folder / "meta.json").write_text(json.dumps(_meta(folder.name, series, refs)))
    return folder


def _meta(
    ulid: str, series: Sequence[tuple[Labels, Sequence[Sample]]], refs: Sequence[Sequence[tuple[int, int, int]]]
) -> dict[str, object]:
    times = [ts_ms for _, samples in series for ts_ms, _ in samples] or [0]
    samples = sum(len(one) for _, one in series)
    stats = {"numSamples": samples, "numSeries": len(series), "numChunks": sum(map(len, refs))}
    return {"ulid": ulid, "minTime": min(times), "maxTime": max(times) + 1, "stats": stats, "version": 1}


def _index(
    series: Sequence[tuple[Labels, Sequence[Sample]]], refs: Sequence[Sequence[tuple[int, int, int]]]
) -> tuple[bytes, list[int]]:
    symbols = sorted({text for labels, _ in series for pair in labels.items() for text in pair} | {""})
    body = struct.pack(">I", len(symbols)) + b"".join(
        uvarint(len(raw)) + raw for raw in (text.encode() for text in symbols)
    )
    made = bytearray(struct.pack(">IB", 0xBAAAD700, 2))
    symbols_at = len(made)
    made += struct.pack(">I", len(body)) + body + crc32c(body)
    made += bytes(-len(made) % 16)
    series_at = len(made)
    numbers = []
    for (labels, _), chunks in zip(series, refs, strict=True):
        made += bytes(-len(made) % 16)
        numbers.append(len(made) // 16)
        body = uvarint(len(labels))
        for name, value in sorted(labels.items()):
            body += uvarint(symbols.index(name)) + uvarint(symbols.index(value))
        body += uvarint(len(chunks))
        end_ms, ref = 0, 0
        for n, (first_ms, last_ms, at) in enumerate(chunks):
            body += uvarint(first_ms - end_ms) if n else varint(first_ms)
            body += uvarint(last_ms - first_ms)
            body += varint(at - ref) if n else uvarint(at)
            end_ms, ref = last_ms, at
        made += uvarint(len(body)) + body + crc32c(body)
    postings_at = len(made)
    made += struct.pack(">I", 4) + bytes(4) + crc32c(bytes(4))
    contents = struct.pack(">QQQQQQ", symbols_at, series_at, 0, 0, postings_at, postings_at)
    return bytes(made + contents + crc32c(contents)), numbers

"""Requests of native histograms in remote write 2.0, one sample of each series a request, and what a Prometheus made of
them."""

from __future__ import annotations

import asyncio
import struct
import urllib.request
from collections.abc import Sequence

import numpy as np
from cramjam import snappy
from numpy.typing import NDArray

from bench.gateway.ingest_bodies import field, varint
from bench.gateway.ingest_senders import OK, HttpSender
from tsdb.model.histograms import HistogramShape

VERSION_2_HEADERS = {
    "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "2.0.0",
}
READ_HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
_HISTOGRAM_TYPE = 5
_NOT_RESET = 2
_VARINT_BYTES_MAX = 10


class HistogramBodies:
    """Requests of the series with these labels, whose histograms have one shape, integer counts and no zero bucket."""

    def __init__(self, labels: Sequence[dict[str, str]], shape: HistogramShape) -> None:
        numbers: dict[str, int] = {"": 0}
        self._series = []
        for one in labels:
            refs = [numbers.setdefault(word, len(numbers)) for pair in sorted(one.items()) for word in pair]
            self._series.append(field(1, b"".join(map(varint, refs))))
        self._symbols = b"".join(field(4, word.encode()) for word in numbers)
        spans = (field(11, b"\x08" + varint(_zigzag(start)) + b"\x10" + varint(size)) for start, size in shape.positive)
        self._shape = b"\x20" + varint(_zigzag(shape.schema)) + b"\x29" + struct.pack("<d", shape.zero_threshold)
        self._shape += b"\x30\x00" + b"".join(spans)
        self._metadata = field(5, b"\x08" + varint(_HISTOGRAM_TYPE))

    def body(self, ts_ms: int, buckets: NDArray[np.int64], sums: NDArray[np.float64]) -> bytes:
        """A request with the histogram of each series at a time. buckets: (series, buckets of the shape)."""
        deltas = np.diff(buckets, axis=1, prepend=0)
        packed, ends = _varints((deltas << 1 ^ deltas >> 63).astype(np.uint64))
        counts, count_ends = _varints(buckets.sum(axis=1).astype(np.uint64)[:, None])
        tail = b"\x70" + varint(_NOT_RESET) + b"\x78" + varint(ts_ms)
        at, count_at = 0, 0
        out = [self._symbols]
        rows = zip(self._series, sums.tolist(), ends, count_ends, strict=True)
        for series, total, end, count_end in rows:
            head = b"\x08" + counts[count_at:count_end] + b"\x19" + struct.pack("<d", total)
            histogram = head + self._shape + field(12, packed[at:end]) + tail
            out.append(field(5, series + field(3, histogram) + self._metadata))
            at, count_at = end, count_end
        return bytes(snappy.compress_raw(b"".join(out)))


def send_histograms(address: str, bodies: Sequence[bytes]) -> None:
    """Send requests one after another. Raises RuntimeError for a refused one."""
    asyncio.run(_send(address, bodies))


async def _send(address: str, bodies: Sequence[bytes]) -> None:
    sender = HttpSender(address, VERSION_2_HEADERS)
    await sender.open(1)
    for body in bodies:
        answer = await sender.send(0, body)
        if answer != OK:
            raise RuntimeError(f"histograms were refused: {answer}")
    await sender.close()


def prometheus_chunk_bytes(host: str, name: str, start_ms: int, end_ms: int) -> int:
    """Bytes of the chunks of all series of a name in a Prometheus, without their heads, as it sends them to a remote
    read."""
    matcher = field(2, b"__name__") + field(3, name.encode())
    query = b"\x08" + varint(start_ms) + b"\x10" + varint(end_ms) + field(3, matcher)
    body = snappy.compress_raw(field(1, query) + b"\x10\x01")
    request = urllib.request.Request(f"http://{host}/api/v1/read", bytes(body), READ_HEADERS)
    with urllib.request.urlopen(request, timeout=120) as answer:
        data = answer.read()
    total, at = 0, 0
    while at < len(data):
        size, at = _read_varint(data, at)
        frame = data[at + 4 : at + 4 + size]  # A checksum precedes the message.
        at += 4 + size
        chunks = [chunk for series in _values(frame, 1) for chunk in _values(series, 2)]
        total += sum(len(value) for chunk in chunks for value in _values(chunk, 4))
    return total


def _varints(values: NDArray[np.uint64]) -> tuple[bytes, list[int]]:
    """The varints of all values, row by row, and where each row ends."""
    left = values[:, :, None] >> (np.arange(_VARINT_BYTES_MAX, dtype=np.uint64) * np.uint64(7))
    used = left > 0
    used[:, :, 0] = True
    data = (left & np.uint64(0x7F)).astype(np.uint8)
    data[:, :, :-1] |= used[:, :, 1:].astype(np.uint8) << 7
    return data[used].tobytes(), np.cumsum(used.sum(axis=(1, 2))).tolist()


def _values(data: bytes, wanted: int) -> list[bytes]:
    """The length-delimited fields with this number."""
    found, at = [], 0
    while at < len(data):
        key, at = _read_varint(data, at)
        size, start = _read_varint(data, at)
        at = start + size if key & 7 == 2 else start
        if key == wanted << 3 | 2:
            found.append(data[start:at])
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number, shift = 0, 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else -number * 2 - 1

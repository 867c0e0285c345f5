"""A client of remote read: its requests, and decoders that share no code with the server's."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cramjam

from tsdb.v1 import remote_read_pb2

SAMPLES, CHUNKS = remote_read_pb2.ReadRequest.SAMPLES, remote_read_pb2.ReadRequest.STREAMED_XOR_CHUNKS
STREAM = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
TYPES = {
    "=": remote_read_pb2.LabelMatcher.EQ,
    "!=": remote_read_pb2.LabelMatcher.NEQ,
    "=~": remote_read_pb2.LabelMatcher.RE,
    "!~": remote_read_pb2.LabelMatcher.NRE,
}

Labels = tuple[tuple[str, str], ...]
Points = list[tuple[int, int]]
"""Times with the bits of their values."""


@dataclass(frozen=True)
class Query:
    """matchers: (name, symbol, value)."""

    matchers: Sequence[tuple[str, str, str]]
    start_ms: int
    end_ms: int


def body(queries: Sequence[Query], accepted: Sequence[int] = ()) -> bytes:
    """The body of a request."""
    request = remote_read_pb2.ReadRequest()
    for query in queries:
        one = request.queries.add(start_timestamp_ms=query.start_ms, end_timestamp_ms=query.end_ms)
        for name, symbol, value in query.matchers:
            one.matchers.add(type=TYPES[symbol], name=name.encode(), value=value.encode())
    request.accepted_response_types.extend(accepted)  # type: ignore[arg-type]  # A test sends unknown ones too.
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def samples_of(answer: bytes) -> list[dict[Labels, Points]]:
    """The series of each query of an answer SAMPLES."""
    response = remote_read_pb2.ReadResponse.FromString(bytes(cramjam.snappy.decompress_raw(answer)))
    return [
        {
            _labels(series.labels): [(one.timestamp, _bits(one.value)) for one in series.samples]
            for series in result.timeseries
        }
        for result in response.results
    ]


def chunks_of(answer: bytes, queries: int = 1) -> list[dict[Labels, Points]]:
    """The series of each query of an answer STREAMED_XOR_CHUNKS."""
    found: list[dict[Labels, Points]] = [{} for _ in range(queries)]
    for message in frames_of(answer):
        for series in message.chunked_series:
            points = found[message.query_index].setdefault(_labels(series.labels), [])
            for chunk in series.chunks:
                decoded = xor_samples(chunk.data)
                assert chunk.type == remote_read_pb2.Chunk.XOR
                assert (decoded[0][0], decoded[-1][0]) == (chunk.min_time_ms, chunk.max_time_ms)
                points += decoded
    return found


def frames_of(answer: bytes) -> Iterator[remote_read_pb2.ChunkedReadResponse]:
    """The messages of a stream; checks their checksums."""
    at = 0
    while at < len(answer):
        size, shift = 0, 0
        while answer[at] & 128:
            size, shift, at = size | (answer[at] & 127) << shift, shift + 7, at + 1
        size, at = size | answer[at] << shift, at + 1
        message = answer[at + 4 : at + 4 + size]
        assert len(message) == size, "the stream is cut off"
        assert struct.unpack(">I", answer[at : at + 4]) == (_crc32c(message),)
        yield remote_read_pb2.ChunkedReadResponse.FromString(message)
        at += 4 + size


def xor_samples(data: bytes) -> Points:
    """The samples of a chunk: tsdb/docs/format/chunks.md of Prometheus, read bit by bit."""
    bits = _Bits(data[2:])
    (count,) = struct.unpack(">H", data[:2])
    zigzag = bits.varint()
    ts_ms, value = zigzag >> 1 ^ -(zigzag & 1), bits.take(64)
    points = [(ts_ms, value)]
    delta, leading, trailing = 0, 0, 0
    while len(points) < count:
        delta = bits.varint() if len(points) == 1 else delta + bits.second_delta()
        ts_ms += delta
        if bits.take(1):
            if bits.take(1):
                leading, width = bits.take(5), bits.take(6) or 64
                trailing = 64 - leading - width
            value ^= bits.take(64 - leading - trailing) << trailing
        points.append((ts_ms, value))
    assert bits.left < 16, "bytes after the last sample"  # Prometheus 2 may end with an empty one.
    return [(at, value - (1 << 64) if value >> 63 else value) for at, value in points]


class _Bits:
    def __init__(self, data: bytes) -> None:
        self._number = int.from_bytes(data, "big")
        self.left = 8 * len(data)

    def take(self, count: int) -> int:
        self.left -= count
        assert self.left >= 0, "the chunk is cut off"
        return self._number >> self.left & (1 << count) - 1

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.take(8)
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def second_delta(self) -> int:
        ones = 0
        while ones < 4 and self.take(1):
            ones += 1
        width = (0, 14, 17, 20, 64)[ones]
        value = self.take(width)
        # Widths below 64 reach to 2^(width - 1) itself.
        is_negative = value >> 63 if width == 64 else value > 1 << width >> 1
        return value - (1 << width) if is_negative else value


def _labels(labels: Sequence[remote_read_pb2.Label]) -> Labels:
    return tuple((one.name.decode(), one.value.decode()) for one in labels)


def _bits(value: float) -> int:
    (bits,) = struct.unpack("<q", struct.pack("<d", value))
    return int(bits)


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()

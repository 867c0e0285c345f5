"""Bodies: the bytes of a request in each protocol. Labels are encoded once a window; times and values are put in
later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.gateway.ingest_series import WorkloadRequest

SEPARATOR = b"\xff"
WINDOWS_MAX = 20_000  # Prepared windows in memory.
TIME_BYTES = 6  # Bytes of a varint of milliseconds since the epoch, from 2004 to 2109.

Encoder = Callable[[WorkloadRequest], bytes]


class GrpcBodies:
    """WriteRequest of proto/tsdb/v1/ingest.proto, all or nothing."""

    def __init__(self, labels: Sequence[bytes]) -> None:
        self._labels = labels
        self._windows: dict[tuple[int, int], bytes] = {}

    def __call__(self, request: WorkloadRequest) -> bytes:
        prefix = self._windows.get(request.window)
        if prefix is None:
            prefix = self._prefix(request)
            if len(self._windows) < WINDOWS_MAX:
                self._windows[request.window] = prefix
        size = varint(8 * len(request.ts_ms))
        times, values = request.ts_ms.astype("<i8").tobytes(), request.values.astype("<f8").tobytes()
        return b"".join((prefix, b"\x1a", size, times, b"\x22", size, values))

    def _prefix(self, request: WorkloadRequest) -> bytes:
        parts = [field(1, self._labels[row]) for row in request.rows.tolist()]
        counts = np.diff(request.starts)
        if (counts != 1).any():
            parts.append(field(2, counts.astype("<u4").tobytes()))
        return b"".join(parts)


class RemoteWriteBodies:
    """Remote write 1.0: a protobuf WriteRequest in a snappy block."""

    def __init__(self, labels: Sequence[bytes]) -> None:
        from cramjam import snappy  # A run that measures only gRPC does not need it.

        self._compress = snappy.compress_raw
        self._labels = labels
        self._windows: dict[tuple[int, int], _Template] = {}

    def __call__(self, request: WorkloadRequest) -> bytes:
        template = self._windows.get(request.window)
        if template is None:
            template = _template(self._labels, request)
            if len(self._windows) < WINDOWS_MAX:
                self._windows[request.window] = template
        return bytes(self._compress(template.filled(request)))


class _Template:
    """The protobuf of a request, with gaps for times and values."""

    def __init__(self, data: bytes, value_at: NDArray[np.int64]) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._value_at = value_at[:, None] + np.arange(8)
        self._time_at = value_at[:, None] + 8 + 1 + np.arange(TIME_BYTES)

    def filled(self, request: WorkloadRequest) -> bytes:
        data = self._data.copy()
        data[self._value_at] = request.values.astype("<f8").view(np.uint8).reshape(-1, 8)
        bits = request.ts_ms[:, None] >> (7 * np.arange(TIME_BYTES)) & 0x7F
        bits[:, :-1] |= 0x80
        data[self._time_at] = bits.astype(np.uint8)
        return data.tobytes()


def _template(labels: Sequence[bytes], request: WorkloadRequest) -> _Template:
    sample = b"\x09" + bytes(8) + b"\x10" + bytes(TIME_BYTES)
    samples = field(2, sample)
    data, value_at = bytearray(), []
    for row, count in zip(request.rows.tolist(), np.diff(request.starts).tolist(), strict=True):
        words = labels[row].removesuffix(SEPARATOR).split(SEPARATOR)
        pairs = sorted(zip(words[::2], words[1::2], strict=True))
        head = b"".join(field(1, field(1, name) + field(2, value)) for name, value in pairs)
        series = field(1, head + samples * count)
        first = len(data) + len(series) - count * len(samples) + len(samples) - len(sample) + 1
        value_at += [first + number * len(samples) for number in range(count)]
        data += series
    return _Template(bytes(data), np.array(value_at, np.int64))


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of protobuf."""
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """The varint of protobuf."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)

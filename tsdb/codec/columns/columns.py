"""Encodes and decodes columns of samples, for callers that are not kernels.

Layout: docs/formats/columns.md. Bit-exact for every float64 and int64. An encoded column contains neither its length
nor a checksum; the record, slice or chunk around it contains both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.columns_kernels import (
    decode_times_kernel,
    decode_values_kernel,
    encode_times_kernel,
    encode_values_dense_kernel,
    encode_values_kernel,
    times_bound,
    values_bound,
)
from tsdb.codec.columns.starts_kernels import RUN_BYTES_MAX, decode_starts_kernel, encode_starts_kernel
from tsdb.model.errors import CorruptData

COLUMN_SAMPLES_MAX = 1 << 24
"""Samples of the longest column. A constant column takes one byte, so without a limit a few bytes could claim any
amount of memory."""


def encode_values(values: NDArray[np.float64]) -> bytes:
    """Encode values, shape (n,), n <= COLUMN_SAMPLES_MAX, fast to read: for memory."""
    _check_length(len(values))
    out = np.empty(values_bound(len(values)), np.uint8)
    stop = encode_values_kernel(np.ascontiguousarray(values, np.float64), 0, len(values), out, 0, scratch(len(values)))
    return out[:stop].tobytes()


def encode_values_dense(values: NDArray[np.float64]) -> bytes:
    """Encode values like encode_values, but smaller and several times slower. Used for chunks. The bytes are the same
    on every machine."""
    _check_length(len(values))
    out = np.empty(values_bound(len(values)), np.uint8)
    given = np.ascontiguousarray(values, np.float64)
    stop = encode_values_dense_kernel(given, 0, len(values), out, 0, scratch(len(values)))
    return out[:stop].tobytes()


def decode_values(data: bytes, n: int) -> NDArray[np.float64]:
    """The n values of a column that is exactly `data`. Raises CorruptData."""
    _check_length(n)
    out = np.empty(n, np.float64)
    stop = decode_values_kernel(np.frombuffer(data, np.uint8), 0, len(data), n, out, 0)
    _check_end("value column", stop, len(data), n)
    return out


def encode_times(ts: NDArray[np.int64]) -> bytes:
    """Encode ascending timestamps, shape (n,), n <= COLUMN_SAMPLES_MAX; any unit, usually ms since some base."""
    _check_length(len(ts))
    out = np.empty(times_bound(len(ts)), np.uint8)
    stop = encode_times_kernel(np.ascontiguousarray(ts, np.int64), 0, len(ts), out, 0, scratch(len(ts)))
    return out[:stop].tobytes()


def decode_times(data: bytes, n: int) -> NDArray[np.int64]:
    """The n timestamps of an axis that is exactly `data`. Raises CorruptData."""
    _check_length(n)
    out = np.empty(n, np.int64)
    stop = decode_times_kernel(np.frombuffer(data, np.uint8), 0, len(data), n, out, 0)
    _check_end("time axis", stop, len(data), n)
    return out


def encode_starts(ts: NDArray[np.int64], starts: NDArray[np.int64]) -> bytes:
    """Encode the start timestamps of samples, shape (n,), 0 for a sample without one.

    ts: the timestamps of the samples, shape (n,), in the same unit. n <= COLUMN_SAMPLES_MAX."""
    _check_length(len(starts))
    assert len(ts) == len(starts), f"{len(ts)} timestamps and {len(starts)} start timestamps"
    out = np.empty(RUN_BYTES_MAX * len(starts), np.uint8)
    given = np.ascontiguousarray(ts, np.int64), np.ascontiguousarray(starts, np.int64)
    return out[: encode_starts_kernel(*given, out, 0)].tobytes()


def decode_starts(data: bytes, ts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The start timestamps, shape (n,), of the samples with the timestamps ts (n,), from a column that is exactly
    `data`. Raises CorruptData."""
    _check_length(len(ts))
    starts = np.empty(len(ts), np.int64)
    given = np.ascontiguousarray(ts, np.int64)
    stop = decode_starts_kernel(np.frombuffer(data, np.uint8), 0, len(data), given, starts)
    _check_end("start column", stop, len(data), len(ts))
    return starts


def scratch(n: int) -> NDArray[np.int64]:
    """Working memory of the encoding kernels for columns of up to n samples. Threads must not share it."""
    return np.empty(4 * n + 64, np.int64)


def _check_length(n: int) -> None:
    if not 0 <= n <= COLUMN_SAMPLES_MAX:
        raise CorruptData(f"column of {n} samples; limit is {COLUMN_SAMPLES_MAX}", reason="corrupt_column")


def _check_end(what: str, stop: int, size: int, n: int) -> None:
    if stop < 0:
        raise CorruptData(f"{what} of {size} bytes does not hold {n} samples", reason="corrupt_column")
    if stop != size:
        raise CorruptData(f"{what} ends at byte {stop} of {size}; got {n} samples", reason="corrupt_column")

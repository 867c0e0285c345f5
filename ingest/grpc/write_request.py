"""Write request: the wire bytes of `Ingest.Write` as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.grpc.write_request_kernels import (
    CUT,
    LONG_NUMBER,
    OUT,
    OUT_LABEL_BYTES,
    OUT_PARTIAL,
    OUT_ROWS,
    OUT_SPANS,
    SAMPLE_COUNTS,
    TS_MS,
    WIRE_TYPE,
    copy_labels_kernel,
    scan_kernel,
)
from ingest.rows import Rows
from tsdb.model.errors import InvalidRequest

_Scalar = TypeVar("_Scalar", np.uint32, np.int64, np.float64)

_PROBLEMS = {
    CUT: "it ends within a field",
    LONG_NUMBER: "a number has too many bytes",
    WIRE_TYPE: "no field has this number and wire type",
}


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """partial: whether good series are written when others are refused."""

    rows: Rows
    partial: bool


def decode_write_request(message: bytes) -> WriteRequest:
    """Raises InvalidRequest (malformed_request). The arrays take less than 5 x the memory of the message."""
    data, out = np.frombuffer(message, np.uint8), np.empty(OUT, np.int64)
    problem = scan_kernel(data, out)
    if problem:
        raise _malformed(
            f"the request is not a valid message: {_PROBLEMS[problem]}; the field begins at byte {out[OUT_ROWS]} of "
            f"{len(message)}"
        )
    counts, ts_ms, values = (message[out[at] : out[at + 1]] for at in range(OUT_SPANS, OUT, 2))
    labels, label_starts = np.empty(out[OUT_LABEL_BYTES], np.uint8), np.empty(out[OUT_ROWS] + 1, np.int64)
    copy_labels_kernel(data, labels, label_starts)
    rows = Rows(
        labels,
        label_starts,
        _starts(counts, int(out[OUT_ROWS])),
        _array("ts_ms", ts_ms, np.int64),
        _array("values", values, np.float64),
    )
    return WriteRequest(rows, bool(out[OUT_PARTIAL]))


def claimed_samples(message: bytes) -> int:
    """Timestamps in a message, as far as it can be read."""
    out = np.empty(OUT, np.int64)
    readable = scan_kernel(np.frombuffer(message, np.uint8), out) == 0
    at = OUT_SPANS + 2 * (TS_MS - SAMPLE_COUNTS)
    return int(out[at + 1] - out[at]) // 8 if readable else 0


def _starts(data: bytes, rows: int) -> NDArray[np.int64]:
    if not data:
        return np.arange(rows + 1, dtype=np.int64)
    counts = _array("sample_counts", data, np.uint32)
    if len(counts) != rows:
        raise _malformed(f"{len(counts)} sample counts for {rows} series")
    if not counts.all():
        raise _malformed(f"series_index {int(np.flatnonzero(counts == 0)[0])} has no samples: leave it out")
    starts = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, dtype=np.int64, out=starts[1:])
    return starts


def _array(name: str, data: bytes, scalar: type[_Scalar]) -> NDArray[_Scalar]:
    """`data` as a packed little-endian array, read-only, without a copy."""
    dtype = np.dtype(scalar).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise InvalidRequest(
            f"{name} has {len(data)} bytes, which is no whole number of {dtype.itemsize}-byte values",
            reason="malformed_request",
            field=name,
        )
    return np.frombuffer(data, dtype)


def _malformed(text: str) -> InvalidRequest:
    return InvalidRequest(text, reason="malformed_request")

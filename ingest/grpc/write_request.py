"""Write request: the wire bytes of `Ingest.Write` as rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.exemplars import LABELS_MALFORMED, TOO_MANY, ExemplarRows, count_dropped
from ingest.grpc.write_request_kernels import (
    CUT,
    EXEMPLAR_LABEL_LENGTHS,
    EXEMPLAR_LABELS,
    EXEMPLAR_SERIES,
    EXEMPLAR_TS_MS,
    EXEMPLAR_VALUES,
    HISTOGRAMS,
    LONG_NUMBER,
    OUT,
    OUT_LABEL_BYTES,
    OUT_PARTIAL,
    OUT_ROWS,
    OUT_SPANS,
    SAMPLE_COUNTS,
    START_MS,
    TS_MS,
    VALUES,
    WIRE_TYPE,
    copy_labels_kernel,
    scan_kernel,
)
from ingest.rows import RowExemplars, Rows
from tsdb.model import defaults
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import SEPARATOR

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


def decode_write_request(
    message: bytes, exemplars_max: int = defaults.REQUEST_EXEMPLARS_MAX, *, keeps_details: bool = True
) -> WriteRequest:
    """Raises InvalidRequest (malformed_request). The arrays take less than 5 x the memory of the message, and 1 KiB an
    exemplar. exemplars_max: the most exemplars; the others are dropped. keeps_details: whether histograms and start
    timestamps are kept."""
    data, out = np.frombuffer(message, np.uint8), np.empty(OUT, np.int64)
    problem = scan_kernel(data, out)
    if problem:
        raise _malformed(
            f"the request is not a valid message: {_PROBLEMS[problem]}; the field begins at byte {out[OUT_ROWS]} of "
            f"{len(message)}"
        )

    def content(number: int) -> bytes:
        at = OUT_SPANS + 2 * (number - SAMPLE_COUNTS)
        return message[out[at] : out[at + 1]]

    labels, label_starts = np.empty(out[OUT_LABEL_BYTES], np.uint8), np.empty(out[OUT_ROWS] + 1, np.int64)
    copy_labels_kernel(data, labels, label_starts)
    rows = Rows(
        labels,
        label_starts,
        _starts(content(SAMPLE_COUNTS), int(out[OUT_ROWS])),
        _array("ts_ms", content(TS_MS), np.int64),
        _array("values", content(VALUES), np.float64),
    )
    if exemplars := content(EXEMPLAR_SERIES):
        series = _array("exemplar_series", exemplars, np.uint32)
        rows = replace(rows, exemplars=_exemplars(series, len(rows), content, exemplars_max))
    start_ms, histograms = content(START_MS), content(HISTOGRAMS)
    if start_ms or histograms:
        # Imported here, so that a gateway of floats alone need not load it.
        from ingest.grpc.write_details import with_details

        try:
            rows = with_details(rows, _array("start_ms", start_ms, np.int64), histograms, keeps=keeps_details)
        except ValueError as error:
            raise _malformed(str(error)) from None
    return WriteRequest(rows, bool(out[OUT_PARTIAL]))


def _exemplars(
    series: NDArray[np.uint32], rows: int, content: Callable[[int], bytes], exemplars_max: int
) -> RowExemplars | None:
    ts_ms = _array("exemplar_ts_ms", content(EXEMPLAR_TS_MS), np.int64)
    values = _array("exemplar_values", content(EXEMPLAR_VALUES), np.float64)
    lengths = _array("exemplar_label_lengths", content(EXEMPLAR_LABEL_LENGTHS), np.uint32)
    labels, total = content(EXEMPLAR_LABELS), int(lengths.sum(dtype=np.int64))
    if not len(series) == len(ts_ms) == len(values) == len(lengths):
        raise _malformed(
            f"{len(series)} exemplars have {len(ts_ms)} times, {len(values)} values and {len(lengths)} label lengths"
        )
    if total != len(labels):
        raise _malformed(f"labels of exemplars have {len(labels)} bytes, their lengths say {total}")
    if int(series.max()) >= rows:
        raise _malformed(f"an exemplar names series_index {int(series.max())} of {rows} series")
    count_dropped(TOO_MANY, max(0, len(series) - exemplars_max))
    found, start = ExemplarRows(exemplars_max), 0
    columns = (column[:exemplars_max].tolist() for column in (series, ts_ms, values, lengths))
    for row, time, value, length in zip(*columns, strict=True):
        parts = labels[start : start + length].split(SEPARATOR) if length else []
        start += length
        if len(parts) % 2:
            count_dropped(LABELS_MALFORMED)
        else:
            found.add(row, time, value, zip(parts[::2], parts[1::2], strict=True))
    return found.built()


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

"""Wire: the bytes of a remote-write request as arrays, with all counts checked before memory is taken.

`decode_wire` is the one caller of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.limits import IngestLimits, check_limit
from ingest.remote_write.wire_kernels import (
    EXEMPLARS,
    GOOD,
    HISTOGRAMS,
    LABEL_BYTES,
    METADATA,
    METADATA_COLUMNS,
    ROW_BAD_REFERENCE,
    ROW_NOT_UTF8,
    ROW_ODD_REFERENCES,
    ROW_TOO_LONG,
    SAMPLES,
    SERIES,
    SPAN_COLUMNS,
    STARTS,
    SYMBOLS,
    TOTALS,
    count_kernel,
    rows_kernel,
)
from ingest.rows import Rows
from tsdb.model.errors import InvalidRequest

VERSION_1, VERSION_2 = 1, 2
LABELS_FACTOR = 8  # Bytes of labels by the bytes of a request of version 2, whose labels are references to symbols.
LABELS_BYTES_MIN = 64 << 10
EXEMPLAR_BYTES = 1024  # Its row in the table, its labels and the objects that hold them.
ROW_ERRORS = {
    ROW_NOT_UTF8: ("labels_malformed", "a label is not valid UTF-8"),
    ROW_BAD_REFERENCE: ("labels_malformed", "a label reference is outside the symbols"),
    ROW_ODD_REFERENCES: ("labels_malformed", "a label name has no value: the label references are odd in number"),
    ROW_TOO_LONG: ("labels_too_long", "its labels have more bytes than labels_bytes_max"),
}


@dataclass(frozen=True, slots=True)
class Wire:
    """rows: float samples; a series with only histograms has a row without samples.

    histograms, exemplars: int64 (n, SPAN_COLUMNS); metadata: int64 (m, METADATA_COLUMNS); spans of all are in the
    request. exemplars_left_out: those beyond the limit. symbols: int64 (2 x symbols,), their spans; empty in version 1.
    start_ms: int64 (samples,), the start timestamps of the float samples, 0 for one without; None where no sample
    has one.
    """

    rows: Rows
    histograms: NDArray[np.int64]
    metadata: NDArray[np.int64]
    exemplars: NDArray[np.int64]
    exemplars_left_out: int
    symbols: NDArray[np.int64]
    start_ms: NDArray[np.int64] | None = None


def decode_wire(body: bytes | bytearray, version: int, limits: IngestLimits, reserve: Callable[[int], None]) -> Wire:
    """Raises InvalidRequest: malformed_request with the byte, too_many_series, too_many_samples, request_too_large.

    reserve: called with bytes before they are allocated; raises Overloaded.
    """
    data, totals = np.frombuffer(body, np.uint8), np.zeros(TOTALS, np.int64)
    _check_position(count_kernel(data, version, totals))
    series, samples = int(totals[SERIES]), int(totals[SAMPLES] + totals[HISTOGRAMS])
    if series > limits.series_max or samples > limits.samples_max:
        check_limit("series", series, limits.series_max, "request_series_max", "too_many_series")
        check_limit("samples", samples, limits.samples_max, "samples_max", "too_many_samples")
    capacity = len(data) if version == VERSION_1 else max(LABELS_BYTES_MIN, LABELS_FACTOR * len(data))
    fixed = 17 * totals[SERIES] + 24 * totals[SAMPLES] + 24 * totals[HISTOGRAMS] + 56 * totals[METADATA]
    exemplars = min(int(totals[EXEMPLARS]), limits.exemplars_max)
    fixed += 16 * totals[SYMBOLS] + EXEMPLAR_BYTES * exemplars
    while True:
        capacity = min(capacity, limits.request_bytes_max)
        reserve(int(fixed) + capacity)
        wire, label_bytes = _rows(data, version, totals.copy(), capacity, limits.labels.total_bytes_max, exemplars)
        if label_bytes <= capacity:
            return wire
        check_limit("bytes of labels", label_bytes, limits.request_bytes_max, "request_bytes_max", "request_too_large")
        capacity = label_bytes


def _rows(
    data: NDArray[np.uint8],
    version: int,
    totals: NDArray[np.int64],
    capacity: int,
    row_bytes_max: int,
    exemplars_max: int,
) -> tuple[Wire, int]:
    """The wire and the bytes of its labels. Beyond the capacity the labels are cut."""
    series, samples = int(totals[SERIES]), int(totals[SAMPLES])
    labels, errors = np.empty(capacity, np.uint8), np.empty(series, np.uint8)
    label_starts, starts = np.empty(series + 1, np.int64), np.empty(series + 1, np.int64)
    ts_ms, values, start_ms = np.empty(samples, np.int64), np.empty(samples, np.float64), np.zeros(samples, np.int64)
    histograms = np.empty((int(totals[HISTOGRAMS]), SPAN_COLUMNS), np.int64)
    exemplars = np.empty((exemplars_max, SPAN_COLUMNS), np.int64)
    # One more entry, because the entry of a repeated series is written before it is left out.
    metadata = np.empty((int(totals[METADATA]) + 1, METADATA_COLUMNS), np.int64)
    symbols = np.empty(2 * int(totals[SYMBOLS]), np.int64)
    bad = rows_kernel(
        data, version, symbols, labels, label_starts, starts, ts_ms, values, start_ms, errors, histograms,
        exemplars, metadata, row_bytes_max, totals,
    )  # fmt: skip
    _check_position(bad)
    used = int(totals[LABEL_BYTES])
    rows = Rows(labels[:used], label_starts, starts, ts_ms, values, _row_errors(errors))
    left_out = int(totals[EXEMPLARS]) - exemplars_max
    return (
        Wire(
            rows,
            histograms,
            metadata[: int(totals[METADATA])],
            exemplars,
            left_out,
            symbols,
            start_ms if totals[STARTS] else None,
        ),
        used,
    )


def _row_errors(errors: NDArray[np.uint8]) -> dict[int, InvalidRequest]:
    """One object for each kind of error: a request may have a bad label in each of 100,000 series."""
    rows = errors.nonzero()[0].tolist()
    if not rows:
        return {}
    kinds = {kind: InvalidRequest(text, reason=reason) for kind, (reason, text) in ROW_ERRORS.items()}
    return {row: kinds[int(errors[row])] for row in rows}


def _check_position(bad: int) -> None:
    if bad != GOOD:
        raise InvalidRequest(f"the protobuf message is corrupt at byte {bad}", reason="malformed_request", byte=bad)

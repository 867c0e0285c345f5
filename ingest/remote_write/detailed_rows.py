"""Rows of a remote-write request with what its samples have beyond a float: histograms and start timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ingest.remote_write.classic_rows import metric_of
from ingest.remote_write.histograms import WireHistograms, decode_histograms
from ingest.remote_write.wire import Wire
from ingest.remote_write.wire_kernels import ROW
from ingest.rows import Rows
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest


def with_details(wire: Wire, body: bytes | bytearray, reserve: Callable[[int], None]) -> Rows:
    """The rows of the wire, to which the histograms of each series are added behind its floats, with their details.

    A row with a histogram that has no meaning is refused whole. Raises InvalidRequest (malformed_request); Overloaded
    from `reserve`, which gets bytes before they are allocated.
    """
    if not len(wire.histograms):
        details = None if wire.start_ms is None else SampleDetails(wire.start_ms)
        return wire.rows if details is None else replace(wire.rows, details=details)
    found = decode_histograms(body, wire.histograms, reserve)
    rows, row_of = wire.rows, wire.histograms[:, ROW]
    floats, histograms = rows.samples, len(row_of)
    reserve(48 * (floats + histograms))
    starts = rows.starts + np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(row_of, minlength=len(rows)))))
    # Histograms come in the order of their rows, so both kinds only move behind the samples of earlier rows.
    float_row = np.repeat(np.arange(len(rows)), np.diff(rows.starts))
    of_float = np.arange(floats) + (starts - rows.starts)[float_row]
    of_histogram = np.arange(histograms) + rows.starts[row_of + 1]
    samples = floats + histograms
    ts_ms, bits = np.empty(samples, np.int64), np.empty(samples, np.uint64)
    ts_ms[of_float], ts_ms[of_histogram] = rows.ts_ms, found.ts_ms
    # Values are copied as integers: a float copy may change a signalling NaN.
    bits[of_float], bits[of_histogram] = rows.values.view(np.uint64), found.columns.sums.view(np.uint64)
    start_ms = np.zeros(samples, np.int64)
    start_ms[of_histogram] = found.start_ms
    if wire.start_ms is not None:
        start_ms[of_float] = wire.start_ms
    histogram_of = np.full(samples, -1, np.int64)
    histogram_of[of_histogram] = np.arange(histograms)
    details = SampleDetails(start_ms if start_ms.any() else None, found.columns, histogram_of)
    errors = {**_row_errors(found, rows, row_of.tolist()), **rows.errors}
    return replace(rows, starts=starts, ts_ms=ts_ms, values=bits.view(np.float64), errors=errors, details=details)


def _row_errors(found: WireHistograms, rows: Rows, row_of: list[int]) -> Mapping[int, InvalidRequest]:
    """The first error of each row with a refused histogram."""
    errors: dict[int, InvalidRequest] = {}
    for index in sorted(found.errors):
        row, error = row_of[index], found.errors[index]
        if row not in errors:
            text = f"{error.message}; metric {metric_of(rows.labels_of(row))!r}"
            errors[row] = InvalidRequest(text, reason=error.reason)
    return errors

"""Details of a write request: its histograms and start timestamps, by columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from ingest.native import received_histograms
from ingest.rows import Rows
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.v1 import common_pb2
from tsdb.wire.histograms import WiredHistograms, decode_histograms


def with_details(rows: Rows, start_ms: NDArray[np.int64], histograms: bytes, *, keeps: bool) -> Rows:
    """The rows with the details of their samples. start_ms: int64, empty without any. histograms: the message, or b"".

    A row with a histogram that has no meaning is refused whole, and without `keeps` each row with a histogram. Raises
    ValueError where parts do not fit together.
    """
    samples = len(rows.values)
    if len(start_ms) and len(start_ms) != rows.samples:
        raise ValueError(f"start_ms has {len(start_ms)} items, there are {rows.samples} timestamps")
    if int(rows.starts[-1]) != samples or samples != rows.samples:
        return rows  # The check of all requests refuses it.
    has_starts = keeps and bool(start_ms.any())
    if not histograms:
        return replace(rows, details=SampleDetails(start_ms)) if has_starts else rows
    try:
        message = common_pb2.Histograms.FromString(histograms)
    except DecodeError as error:
        raise ValueError(f"the histograms are no valid message: {error}") from None
    found = decode_histograms(message, rows.values)
    received_histograms.inc(len(found.columns))
    errors = {**_errors(rows, found, keeps=keeps), **rows.errors}
    if not keeps or not len(found.columns):
        return replace(rows, errors=errors)
    details = SampleDetails(start_ms if has_starts else None, found.columns, found.histogram_of)
    return replace(rows, errors=errors, details=details)


def _errors(rows: Rows, found: WiredHistograms, *, keeps: bool) -> dict[int, InvalidRequest]:
    """The first error of each row with a refused histogram."""
    samples = np.flatnonzero(found.histogram_of >= 0)
    row_of = np.searchsorted(rows.starts, samples, side="right") - 1
    if not keeps:
        refused = InvalidRequest(
            "native histograms by gRPC are refused here: set native_histograms = keep", reason="native_histogram"
        )
        return dict.fromkeys(_rows(row_of), refused)
    errors: dict[int, InvalidRequest] = {}
    for index in sorted(found.errors):
        errors.setdefault(int(row_of[index]), found.errors[index])
    return errors


def _rows(row_of: NDArray[np.int64]) -> Iterable[int]:
    rows: list[int] = np.unique(row_of).tolist()
    return rows

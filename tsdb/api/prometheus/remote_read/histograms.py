"""Encodes the field `histograms` of a TimeSeries: native histograms as messages of Prometheus. Pure.

A message has the counts as floats, so that all histograms of one shape have messages of one size: they are written as
one matrix for each shape, without a Python object for a histogram. A Prometheus evaluates both kinds of counts alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.remote_read.wire import (
    LONG_BYTES,
    SHORT_BYTES,
    message_head,
    padded_varints,
    short_times,
    varint,
)
from tsdb.model.histograms import HistogramColumns, HistogramShape, Span, narrow_spans

HISTOGRAMS = 4  # Field number in TimeSeries.
_VARINT, _FIXED_64, _BYTES = 0, 1, 2  # Wire types.
_COUNT, _SUM, _SCHEMA, _ZERO_THRESHOLD, _ZERO_COUNT = 2, 3, 4, 5, 7  # Field numbers in Histogram.
_NEGATIVE_SPANS, _NEGATIVE_COUNTS, _POSITIVE_SPANS, _POSITIVE_COUNTS = 8, 10, 11, 13
_HINT, _TIME, _CUSTOM_VALUES = 14, 15, 16
HISTOGRAM_BYTES_MAX = 80  # Bytes of a message beside its buckets and its shape.
SPAN_BYTES_MAX = 16


def histograms_bytes(columns: HistogramColumns) -> int:
    """Upper bound of the bytes of the fields."""
    of_shape = [
        SPAN_BYTES_MAX * (len(shape.positive) + len(shape.negative)) + 8 * len(shape.bounds) for shape in columns.shapes
    ]
    shapes = int(np.array([*of_shape, 0], np.int64)[columns.shape_of].sum())
    return HISTOGRAM_BYTES_MAX * len(columns) + 8 * len(columns.buckets) + shapes


def histogram_fields(
    columns: HistogramColumns, ts_ms: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(fields, starts): the field of histogram i, tag and length included, is fields[starts[i]:starts[i + 1]], uint8.

    ts_ms: int64, the time of each histogram.
    """
    time_bytes = SHORT_BYTES if short_times(ts_ms) else LONG_BYTES
    parts = {shape: _Message(columns.shapes[shape], time_bytes) for shape in np.unique(columns.shape_of).tolist()}
    size_of = np.zeros(len(columns.shapes) + 1, np.int64)
    for shape, message in parts.items():
        size_of[shape] = message.size
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(size_of[columns.shape_of])))
    out = np.empty(int(starts[-1]), np.uint8)
    times = padded_varints(ts_ms, time_bytes)
    for shape, message in parts.items():
        rows = np.flatnonzero(columns.shape_of == shape)
        out[starts[rows][:, np.newaxis] + np.arange(message.size)] = message.matrix(columns, rows, times[rows])
    return out, starts


class _Message:
    """The message of a shape: constant bytes, and the places of what differs from one histogram to the next."""

    def __init__(self, shape: HistogramShape, time_bytes: int) -> None:
        self._bytes = bytearray()
        self._time_bytes = time_bytes
        self._positive = shape.positive_buckets
        self._count = self._room(_COUNT, _FIXED_64, 8)
        self._sum = self._room(_SUM, _FIXED_64, 8)
        self._bytes += _tag(_SCHEMA, _VARINT) + varint(_zigzag(shape.schema))
        self._bytes += _tag(_ZERO_THRESHOLD, _FIXED_64) + np.array([shape.zero_threshold], "<f8").tobytes()
        self._zero_count = self._room(_ZERO_COUNT, _FIXED_64, 8)
        self._negative_counts = self._side(shape.negative, _NEGATIVE_SPANS, _NEGATIVE_COUNTS)
        self._positive_counts = self._side(shape.positive, _POSITIVE_SPANS, _POSITIVE_COUNTS)
        self._hint = self._room(_HINT, _VARINT, 1)
        self._time = self._room(_TIME, _VARINT, time_bytes)
        if shape.bounds:
            self._bytes += _tag(_CUSTOM_VALUES, _BYTES) + varint(8 * len(shape.bounds))
            self._bytes += np.array(shape.bounds, "<f8").tobytes()
        self._head = message_head(HISTOGRAMS, len(self._bytes))
        self.size = len(self._head) + len(self._bytes)

    def _room(self, number: int, wire_type: int, size: int) -> slice:
        self._bytes += _tag(number, wire_type)
        start = len(self._bytes)
        self._bytes += bytes(size)
        return slice(start, start + size)

    def _side(self, spans: Sequence[Span], number: int, counts: int) -> slice:
        for offset, length in narrow_spans(spans):
            span = _tag(1, _VARINT) + varint(_zigzag(offset)) + _tag(2, _VARINT) + varint(length)
            self._bytes += _tag(number, _BYTES) + varint(len(span)) + span
        size = 8 * sum(length for _, length in spans)
        if not size:
            return slice(0, 0)
        self._bytes += _tag(counts, _BYTES) + varint(size)
        start = len(self._bytes)
        self._bytes += bytes(size)
        return slice(start, start + size)

    def matrix(self, columns: HistogramColumns, rows: NDArray[np.int64], times: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The messages of these histograms, uint8 (rows, size)."""
        message = np.tile(np.frombuffer(bytes(self._head + self._bytes), np.uint8), (len(rows), 1))
        found = message[:, len(self._head) :]
        found[:, self._count] = _bytes_of(columns.counts[rows])
        found[:, self._sum] = _bytes_of(columns.sums[rows])
        found[:, self._zero_count] = _bytes_of(columns.zero_counts[rows])
        width = int(columns.starts[rows[0] + 1] - columns.starts[rows[0]])
        buckets = columns.buckets[columns.starts[rows][:, np.newaxis] + np.arange(width)]
        found[:, self._positive_counts] = _bytes_of(buckets[:, : self._positive])
        found[:, self._negative_counts] = _bytes_of(buckets[:, self._positive :])
        found[:, self._hint.start] = columns.hints[rows]
        found[:, self._time] = times
        return message


def _bytes_of(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(len(values), -1)
    return found


def _tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1

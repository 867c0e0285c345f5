"""Exemplars of an OTLP request: of each data point, as exemplars of the series that Prometheus gives them to.

That is the series itself for a sum, and for a histogram the bucket that has the exemplar's value: an exponential
histogram has classic buckets here. Labels are `trace_id` and `span_id` in hex, then the filtered attributes, unless all
together would have more than 128 characters: then only the first two.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from ingest.exemplars import TOO_MANY, ExemplarRows, count_dropped
from ingest.otlp.wire.field_kernels import (
    EXEMPLAR_AT,
    EXEMPLAR_END,
    EXEMPLAR_POINT,
    EXPONENTIAL,
    HISTOGRAM,
    METRIC_KIND,
    POINT_METRIC,
)
from ingest.otlp.wire.tables import Tables
from ingest.otlp.wire.values import read_attributes, text_of
from ingest.protobuf_fields import Buffer, fields
from ingest.rows import RowExemplars
from tsdb.codec.protobuf_kernels import FIXED64, LENGTH
from tsdb.codec.records.exemplar_record import LABEL_CHARS_MAX

NS_PER_MS = 1_000_000
# Fields of opentelemetry.proto.metrics.v1.Exemplar.
_TIME, _DOUBLE, _SPAN_ID, _TRACE_ID, _INT, _ATTRIBUTE = 2, 3, 4, 5, 6, 7
Pairs = list[tuple[bytes, bytes]]


def exemplars_of(
    tables: Tables,
    data: Buffer,
    spans: NDArray[np.int64],
    boundaries: NDArray[np.float64],
    row_points: NDArray[np.int64],
) -> RowExemplars | None:
    """spans, boundaries: the buckets of each point. row_points: int64 (rows,), the point of each row, ascending; a
    histogram's rows end with its buckets, the last one +Inf. Raises InvalidRequest (malformed_request)."""
    count_dropped(TOO_MANY, tables.exemplars - len(tables.exemplar_spans))
    found = ExemplarRows(len(tables.exemplar_spans))
    points = tables.exemplar_spans[:, EXEMPLAR_POINT]
    kinds = tables.metrics[tables.points[points, POINT_METRIC], METRIC_KIND]
    last_rows = np.searchsorted(row_points, points, side="right") - 1
    first_rows = np.searchsorted(row_points, points)
    for index, (kind, first, last) in enumerate(
        zip(kinds.tolist(), first_rows.tolist(), last_rows.tolist(), strict=True)
    ):
        at, end = tables.exemplar_spans[index, [EXEMPLAR_AT, EXEMPLAR_END]].tolist()
        ts_ms, value, pairs = _read(data, at, end)
        row = first
        if kind in (HISTOGRAM, EXPONENTIAL) and last > first:
            begin, stop = spans[points[index]].tolist()
            # The first boundary that is not below the value. NaN is above all of them.
            row = last - (stop - begin) + int(np.searchsorted(boundaries[begin:stop], value))
        found.add(row, ts_ms, value, pairs)
    return found.built()


def _read(data: Buffer, at: int, end: int) -> tuple[int, float, Pairs]:
    """(time in ms, value, labels) of an Exemplar message."""
    ts_ms, value = 0, 0.0
    ids: dict[bytes, bytes] = {}
    for number, kind, start, stop in fields(data, at, end):
        if number == _TIME and kind == FIXED64:
            ts_ms = int.from_bytes(data[start:stop], "little") // NS_PER_MS
        elif number == _DOUBLE and kind == FIXED64:
            (value,) = struct.unpack_from("<d", data, start)
        elif number == _INT and kind == FIXED64:
            value = float(int.from_bytes(data[start:stop], "little", signed=True))
        elif number in (_SPAN_ID, _TRACE_ID) and kind == LENGTH:
            # An id that is all zeros is not set.
            name = b"trace_id" if number == _TRACE_ID else b"span_id"
            ids[name] = bytes(data[start:stop]).hex().encode() if any(data[start:stop]) else b""
    own = [(name, text) for name, text in ids.items() if text]
    attributes = [(key, text_of(value)) for key, value in read_attributes(data, at, end, _ATTRIBUTE)]
    chars = sum(len(part.decode(errors="replace")) for pair in (*own, *attributes) for part in pair)
    return ts_ms, value, own + attributes if chars <= LABEL_CHARS_MAX else own

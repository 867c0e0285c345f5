"""Tables: what an ExportMetricsServiceRequest has, as rows of numbers and spans of its bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.limits import check_limit
from ingest.otlp.wire.field_kernels import (
    BOUNDS_SIZE,
    COUNTS,
    ERROR_AT,
    EXEMPLAR_COLUMNS,
    EXEMPLARS,
    METRIC_COLUMNS,
    METRICS,
    ODD,
    ODD_COLUMNS,
    POINT_COLUMNS,
    POINTS,
    RESOURCE_COLUMNS,
    RESOURCES,
    ROWS,
    SCOPE_COLUMNS,
    SCOPES,
    START_TIMES,
    TOTALS,
    Int64Tables,
)
from ingest.otlp.wire.scan_kernels import scan_kernel
from ingest.protobuf_fields import Buffer
from tsdb.model import defaults
from tsdb.model.errors import InvalidRequest

EXEMPLAR_BYTES = 1024  # Its row in the table, its labels and the objects that hold them.


@dataclass(frozen=True, slots=True)
class TableLimits:
    """rows_max: series that the points of one request may give. odd_max: attribute values other than text, integers
    and booleans. attributes_max: attributes of one point and of one resource; a point with more is refused.
    exemplars_max: exemplars of one request; the others are dropped.
    """

    rows_max: int = 100_000
    odd_max: int = 100_000
    attributes_max: int = 128
    exemplars_max: int = defaults.REQUEST_EXEMPLARS_MAX


@dataclass(frozen=True, slots=True)
class Tables:
    """int64 tables with the columns of `fields`; only resources, scopes and metrics with a point have a row.

    data: uint8, the request. counts, bounds: int64, integers or the bits of a float64. exemplar_spans: spans of at
    most exemplars_max exemplars, by point. exemplars, start_times: number of all exemplars, and of points with a start
    time. rows_max: the most rows that the points give.
    """

    data: NDArray[np.uint8]
    resources: NDArray[np.int64]
    scopes: NDArray[np.int64]
    metrics: NDArray[np.int64]
    points: NDArray[np.int64]
    counts: NDArray[np.int64]
    bounds: NDArray[np.int64]
    odd: NDArray[np.int64]
    exemplar_spans: NDArray[np.int64]
    exemplars: int
    start_times: int
    rows_max: int


def scan(data: Buffer, limits: TableLimits, reserve: Callable[[int], None]) -> Tables:
    """reserve: called with the bytes of the tables before they are made.

    Raises InvalidRequest: malformed_request with the byte, too_many_series, message_too_large."""
    values = np.frombuffer(data, np.uint8)
    totals = np.zeros(TOTALS, np.int64)
    if not scan_kernel(values, False, limits.attributes_max, *_empty(totals, limits), totals):
        raise malformed(f"it breaks the protobuf format at byte {totals[ERROR_AT]} of {len(data)}")
    check_limit("series", totals[ROWS], limits.rows_max, "request_series_max", "too_many_series")
    texts = "attribute values that are double, array, map or bytes"
    check_limit(texts, totals[ODD], limits.odd_max, "request_series_max", "message_too_large")
    reserve(_bytes(totals) + EXEMPLAR_BYTES * min(int(totals[EXEMPLARS]), limits.exemplars_max))
    tables, numbers = _empty(totals, limits)
    again = np.zeros(TOTALS, np.int64)
    filled = scan_kernel(values, True, limits.attributes_max, tables, numbers, again)
    assert filled, "the second scan read other bytes than the first"
    assert (again == totals).all(), "the second scan read other bytes than the first"
    resources, scopes, metrics, points, odd, exemplar_spans = tables
    counts, bounds = numbers
    return Tables(
        data=values,
        resources=resources,
        scopes=scopes,
        metrics=metrics,
        points=points[: totals[POINTS]],
        counts=counts,
        bounds=bounds,
        odd=odd,
        exemplar_spans=exemplar_spans,
        exemplars=int(totals[EXEMPLARS]),
        start_times=int(totals[START_TIMES]),
        rows_max=int(totals[ROWS]),
    )


def malformed(text: str) -> InvalidRequest:
    """The request is not a valid message."""
    return InvalidRequest(f"the request is not a valid ExportMetricsServiceRequest: {text}", reason="malformed_request")


def _empty(totals: NDArray[np.int64], limits: TableLimits) -> tuple[Int64Tables, Int64Tables]:
    """Tables of the sizes in `totals`; at least one point, which the counting scan uses as scratch."""
    shapes = (
        (totals[RESOURCES], RESOURCE_COLUMNS),
        (totals[SCOPES], SCOPE_COLUMNS),
        (totals[METRICS], METRIC_COLUMNS),
        (max(1, totals[POINTS]), POINT_COLUMNS),
        (totals[ODD], ODD_COLUMNS),
        (min(totals[EXEMPLARS], limits.exemplars_max), EXEMPLAR_COLUMNS),
    )
    numbers = np.empty(totals[COUNTS], np.int64), np.empty(totals[BOUNDS_SIZE], np.int64)
    return tuple(np.empty(shape, np.int64) for shape in shapes), numbers


def _bytes(totals: NDArray[np.int64]) -> int:
    tables, numbers = (RESOURCES, SCOPES, METRICS, POINTS, ODD), (COUNTS, BOUNDS_SIZE)
    columns = (RESOURCE_COLUMNS, SCOPE_COLUMNS, METRIC_COLUMNS, POINT_COLUMNS, ODD_COLUMNS)
    items = sum(int(totals[table]) * width for table, width in zip(tables, columns, strict=True))
    return 8 * (items + sum(int(totals[size]) for size in numbers))

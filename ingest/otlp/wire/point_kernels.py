"""Helpers that walk one data point: its numbers, attributes and buckets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.wire.field_kernels import (
    ATTRIBUTE,
    ATTRIBUTE_BYTES,
    ATTRIBUTES,
    BOUNDS,
    BOUNDS_AT,
    BOUNDS_END,
    BOUNDS_SIZE,
    BUCKET_COUNTS,
    COUNT,
    COUNTS,
    COUNTS_AT,
    COUNTS_END,
    DOUBLE,
    DOUBLE_VALUE,
    EXEMPLAR,
    EXEMPLAR_AT,
    EXEMPLAR_END,
    EXEMPLAR_POINT,
    EXEMPLAR_TABLE,
    EXEMPLARS,
    EXPONENTIAL,
    FIELD_MAX,
    FLAGS,
    HISTOGRAM,
    IGNORED,
    INT_VALUE,
    METRICS,
    NEGATIVE,
    NEGATIVE_OFFSET,
    NEGATIVES_AT,
    NEGATIVES_END,
    ODD,
    ODD_AT,
    ODD_KIND,
    ODD_TABLE,
    ODD_VALUE_AT,
    ODD_VALUE_END,
    POINT_AT,
    POINT_COLUMNS,
    POINT_COUNT,
    POINT_END,
    POINT_FLAGS,
    POINT_HAS_SUM,
    POINT_INTEGER,
    POINT_METRIC,
    POINT_SCALE,
    POINT_START,
    POINT_SUM,
    POINT_TABLE,
    POINT_TIME,
    POINT_VALUE,
    POINT_ZERO_COUNT,
    POINT_ZERO_THRESHOLD,
    POINTS,
    POSITIVE,
    POSITIVE_OFFSET,
    QUANTILE,
    ROLES,
    ROWS,
    SCALE,
    START_TIME,
    START_TIMES,
    SUMMARY,
    TIME,
    TOTAL,
    ZERO_COUNT,
    ZERO_THRESHOLD,
    Int64Tables,
    read_attribute,
    zigzag,
)
from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_i64
from tsdb.codec.protobuf_kernels import FIXED64, LENGTH, VARINT, next_field
from tsdb.codec.varint_kernels import get_varint

# Rows of an exponential histogram in addition to one a bucket: sum, count, +Inf, the zero bucket, two outer boundaries.
EXPONENTIAL_ROWS = 6


@helper
def scan_point(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    kind: int,
    fill: bool,
    attributes_max: int,
    tables: Int64Tables,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
) -> int:
    points = tables[POINT_TABLE]
    row = points[totals[POINTS]] if fill else points[0]  # Without `fill` the row is a scratch row.
    for column in range(POINT_COLUMNS):
        row[column] = 0
    row[POINT_AT], row[POINT_END], row[POINT_METRIC], row[ODD_AT] = begin, end, totals[METRICS], totals[ODD]
    row[COUNTS_AT] = row[COUNTS_END] = row[NEGATIVES_AT] = row[NEGATIVES_END] = totals[COUNTS]
    row[BOUNDS_AT] = totals[BOUNDS_SIZE]
    started, pos = 0, begin
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos
        role = ROLES[kind, number] if number <= FIELD_MAX else IGNORED
        if wire == FIXED64:
            _set_number(role, load_i64(data, start), row)
            started = 1 if role == START_TIME else started
            if role in (BUCKET_COUNTS, BOUNDS):
                _append(data, role, start, stop, fill, numbers, totals)
        elif wire == VARINT:
            if role == FLAGS:
                row[POINT_FLAGS] = start
            elif role == SCALE:
                row[POINT_SCALE] = zigzag(start)
        elif wire == LENGTH and role != IGNORED:
            failed = 0
            if role == ATTRIBUTE:
                failed = _scan_attribute(data, start, stop, fill, attributes_max, row, tables, totals)
            elif role == EXEMPLAR:
                exemplars = tables[EXEMPLAR_TABLE]
                if fill and totals[EXEMPLARS] < exemplars.shape[0]:  # Those beyond the limit are only counted.
                    exemplars[totals[EXEMPLARS], EXEMPLAR_POINT] = totals[POINTS]
                    exemplars[totals[EXEMPLARS], EXEMPLAR_AT] = start
                    exemplars[totals[EXEMPLARS], EXEMPLAR_END] = stop
                totals[EXEMPLARS] += 1
            elif role in (BUCKET_COUNTS, BOUNDS):
                if (stop - start) % 8:
                    return ~start
                _append(data, role, start, stop, fill, numbers, totals)
            elif role == QUANTILE:
                failed = _scan_quantile(data, start, stop, fill, numbers, totals)
            elif role == POSITIVE:
                failed = _join_buckets(
                    data, start, stop, fill, numbers, totals, row[COUNTS_AT : COUNTS_END + 1], row[POSITIVE_OFFSET:]
                )
            elif role == NEGATIVE:
                failed = _join_buckets(
                    data,
                    start,
                    stop,
                    fill,
                    numbers,
                    totals,
                    row[NEGATIVES_AT : NEGATIVES_END + 1],
                    row[NEGATIVE_OFFSET:],
                )
            if failed < 0:
                return failed
    row[BOUNDS_END] = totals[BOUNDS_SIZE]
    if kind in (HISTOGRAM, SUMMARY):
        row[COUNTS_END] = totals[COUNTS]
    totals[START_TIMES] += started
    totals[POINTS] += 1
    totals[ROWS] += _rows_at_most(kind, row)
    return 0


@helper
def _rows_at_most(kind: int, row: NDArray[np.int64]) -> int:
    buckets = row[COUNTS_END] - row[COUNTS_AT]
    if kind == HISTOGRAM:
        return int(min(buckets, row[BOUNDS_END] - row[BOUNDS_AT]) + 3)
    if kind == EXPONENTIAL:
        return int(buckets + row[NEGATIVES_END] - row[NEGATIVES_AT] + EXPONENTIAL_ROWS)
    return int(buckets + 2) if kind == SUMMARY else 1


@helper
def _set_number(role: int, bits: int, row: NDArray[np.int64]) -> None:
    if role == TIME:
        row[POINT_TIME] = bits
    elif role == START_TIME:
        row[POINT_START] = bits
    elif role == DOUBLE_VALUE:
        row[POINT_VALUE], row[POINT_INTEGER] = bits, 0
    elif role == INT_VALUE:
        row[POINT_VALUE], row[POINT_INTEGER] = bits, 1
    elif role == COUNT:
        row[POINT_COUNT] = bits
    elif role == TOTAL:
        row[POINT_SUM], row[POINT_HAS_SUM] = bits, 1
    elif role == ZERO_COUNT:
        row[POINT_ZERO_COUNT] = bits
    elif role == ZERO_THRESHOLD:
        row[POINT_ZERO_THRESHOLD] = bits


@helper
def _append(
    data: NDArray[np.uint8],
    role: int,
    begin: int,
    end: int,
    fill: bool,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
) -> None:
    """The 8-byte numbers [begin, end) to the counts or bounds."""
    size, into = (COUNTS, numbers[0]) if role == BUCKET_COUNTS else (BOUNDS_SIZE, numbers[1])
    if fill:
        for i in range((end - begin) // 8):
            into[totals[size] + i] = load_i64(data, begin + 8 * i)
    totals[size] += (end - begin) // 8


@helper
def _scan_attribute(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    attributes_max: int,
    row: NDArray[np.int64],
    tables: Int64Tables,
    totals: NDArray[np.int64],
) -> int:
    failed, _, _, kind, value, value_end = read_attribute(data, begin, end)
    if failed < 0:
        return failed
    row[ATTRIBUTES] += 1
    row[ATTRIBUTE_BYTES] += end - begin
    if kind >= DOUBLE and row[ATTRIBUTES] <= attributes_max:
        if fill:
            odd = tables[ODD_TABLE]
            odd[totals[ODD], ODD_KIND] = kind
            odd[totals[ODD], ODD_VALUE_AT], odd[totals[ODD], ODD_VALUE_END] = value, value_end
        totals[ODD] += 1
    return 0


@helper
def _scan_quantile(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
) -> int:
    """Scan a ValueAtQuantile: its quantile goes to the bounds, the bits of its value to the counts."""
    quantile, value, pos = 0, 0, begin
    while pos < end:
        pos, number, wire, start, _ = next_field(data, pos, end)
        if pos < 0:
            return pos
        if wire == FIXED64:
            if number == 1:
                quantile = load_i64(data, start)
            elif number == 2:
                value = load_i64(data, start)
    if fill:
        numbers[0][totals[COUNTS]], numbers[1][totals[BOUNDS_SIZE]] = value, quantile
    totals[BOUNDS_SIZE] += 1
    totals[COUNTS] += 1
    return 0


@helper
def _join_buckets(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
    span: NDArray[np.int64],
    offset: NDArray[np.int64],
) -> int:
    """Scan the Buckets of one sign. span: [first, end) of its counts so far. A message that comes twice is joined, as
    protobuf does; with the other sign between its parts, which no encoder writes, it is refused. Returns 0 or ~byte."""
    if span[0] == span[1]:
        span[0] = totals[COUNTS]
    elif span[1] != totals[COUNTS]:
        return ~begin
    failed, offset[0] = _scan_buckets(data, begin, end, fill, numbers, totals, offset[0])
    span[1] = totals[COUNTS]
    return failed


@helper
def _scan_buckets(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
    offset: int,
) -> tuple[int, int]:
    """Scan the Buckets of an exponential histogram. Returns (0 or ~byte of an error, offset). offset: that of a message
    without one."""
    pos = begin
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos, 0
        if number == 1 and wire == VARINT:
            offset = zigzag(start)
        elif number == 2 and wire == VARINT:
            if fill:
                numbers[0][totals[COUNTS]] = start
            totals[COUNTS] += 1
        elif number == 2 and wire == LENGTH:
            at = start
            while at < stop:
                value, after = get_varint(data, at, stop)
                if after < 0:
                    return ~at, 0
                if fill:
                    numbers[0][totals[COUNTS]] = value
                totals[COUNTS] += 1
                at = after
    return 0, offset

"""The kernel that walks an ExportMetricsServiceRequest: it counts the rows of the tables, or fills them.

Only a resource, scope or metric with a point gets a row, so an endless request without points makes no tables. Unknown
fields and fields of another wire type are skipped, as protobuf does. Python twin: tests/support/oracles/otlp_twin.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.wire.field_kernels import (
    ERROR_AT,
    HELP_AT,
    HELP_END,
    KIND_OF_FIELD,
    METRIC_KIND,
    METRIC_MONOTONIC,
    METRIC_RESOURCE,
    METRIC_SCOPE,
    METRIC_TABLE,
    METRIC_TEMPORALITY,
    METRICS,
    NAME_AT,
    NAME_END,
    POINTS,
    POINTS_AT,
    POINTS_END,
    RESOURCE_AT,
    RESOURCE_ATTRIBUTES,
    RESOURCE_END,
    RESOURCE_TABLE,
    RESOURCES,
    SCOPE_AT,
    SCOPE_END,
    SCOPE_TABLE,
    SCOPES,
    SUM,
    UNIT_AT,
    UNIT_END,
    Int64Tables,
    NumberTables,
    PlainTables,
    read_attribute,
)
from ingest.otlp.wire.point_kernels import scan_point
from tsdb.codec.jit import helper, request_kernel
from tsdb.codec.protobuf_kernels import LENGTH, VARINT, next_field


@request_kernel
def scan_kernel(
    data: NDArray[np.uint8],
    fill: bool,
    attributes_max: int,
    tables: PlainTables,
    numbers: NumberTables,
    totals: NDArray[np.int64],
) -> bool:
    """Adds to `totals`, and fills the tables if `fill`. False: the bytes break the format at byte totals[ERROR_AT].

    ROWS: the most rows that the points can give. A point with more than attributes_max attributes adds no odd values.
    """
    pos, end = 0, data.size
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            totals[ERROR_AT] = ~pos
            return False
        if number != 1 or wire != LENGTH:
            continue
        before = totals[POINTS]
        failed = _scan_resource(data, start, stop, fill, attributes_max, tables, numbers, totals)
        if failed < 0:
            totals[ERROR_AT] = ~failed
            return False
        if totals[POINTS] > before:
            totals[RESOURCES] += 1
    return True


@helper
def _scan_resource(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    attributes_max: int,
    tables: Int64Tables,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
) -> int:
    """Scan a ResourceMetrics. Returns 0 or ~byte of an error, as the functions below do. A second `resource` is an
    error."""
    first_point, attributes, pos, resource_at, resource_end = totals[POINTS], 0, begin, begin, begin
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos
        if wire != LENGTH:
            continue
        if number == 1:
            if resource_end > resource_at:
                return ~start
            resource_at, resource_end = start, stop
            at = start
            while at < stop:
                at, inner, wire, value, value_end = next_field(data, at, stop)
                if at < 0:
                    return at
                if inner == 1 and wire == LENGTH:
                    failed, _, _, _, _, _ = read_attribute(data, value, value_end)
                    if failed < 0:
                        return failed
                    attributes += 1
        elif number == 2:
            before = totals[POINTS]
            failed = _scan_scope(data, start, stop, fill, attributes_max, tables, numbers, totals)
            if failed < 0:
                return failed
            if totals[POINTS] > before:
                totals[SCOPES] += 1
    if fill and totals[POINTS] > first_point:
        row = totals[RESOURCES]
        resources = tables[RESOURCE_TABLE]
        resources[row, RESOURCE_AT], resources[row, RESOURCE_END] = resource_at, resource_end
        resources[row, RESOURCE_ATTRIBUTES] = attributes
    return 0


@helper
def _scan_scope(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    attributes_max: int,
    tables: Int64Tables,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
) -> int:
    """Scan a ScopeMetrics. Its row has the span of the whole message. The scope itself is read later, where a setting
    needs it."""
    first_point, pos = totals[POINTS], begin
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos
        if number == 2 and wire == LENGTH:
            before = totals[POINTS]
            failed = _scan_metric(data, start, stop, fill, attributes_max, tables, numbers, totals)
            if failed < 0:
                return failed
            if totals[POINTS] > before:
                totals[METRICS] += 1
    if fill and totals[POINTS] > first_point:
        scopes = tables[SCOPE_TABLE]
        scopes[totals[SCOPES], SCOPE_AT], scopes[totals[SCOPES], SCOPE_END] = begin, end
    return 0


@helper
def _scan_metric(
    data: NDArray[np.uint8],
    begin: int,
    end: int,
    fill: bool,
    attributes_max: int,
    tables: Int64Tables,
    numbers: Int64Tables,
    totals: NDArray[np.int64],
) -> int:
    """Scan a Metric. Of several kinds of `data` the last one counts, with all its parts, as protobuf merges them."""
    kind, pos = -1, begin
    name_at, name_end, help_at, help_end, unit_at, unit_end = begin, begin, begin, begin, begin, begin
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos
        if wire != LENGTH:
            continue
        if number == 1:
            name_at, name_end = start, stop
        elif number == 2:
            help_at, help_end = start, stop
        elif number == 3:
            unit_at, unit_end = start, stop
        elif number < KIND_OF_FIELD.size and KIND_OF_FIELD[number] >= 0:
            kind = KIND_OF_FIELD[number]
    first_point, temporality, monotonic, outer = totals[POINTS], 0, 0, begin
    while outer < end and kind >= 0:
        outer, number, wire, pos, data_end = next_field(data, outer, end)
        if wire != LENGTH or number >= KIND_OF_FIELD.size or KIND_OF_FIELD[number] != kind:
            continue
        while pos < data_end:
            pos, number, wire, start, stop = next_field(data, pos, data_end)
            if pos < 0:
                return pos
            if number == 1 and wire == LENGTH:
                failed = scan_point(data, start, stop, kind, fill, attributes_max, tables, numbers, totals)
                if failed < 0:
                    return failed
            elif number == 2 and wire == VARINT:
                temporality = start
            elif number == 3 and wire == VARINT and kind == SUM:
                monotonic = 1 if start != 0 else 0
    if fill and totals[POINTS] > first_point:
        row = tables[METRIC_TABLE][totals[METRICS]]
        row[METRIC_RESOURCE], row[METRIC_SCOPE], row[METRIC_KIND] = totals[RESOURCES], totals[SCOPES], kind
        row[METRIC_TEMPORALITY], row[METRIC_MONOTONIC] = temporality, monotonic
        row[NAME_AT], row[NAME_END], row[HELP_AT], row[HELP_END] = name_at, name_end, help_at, help_end
        row[UNIT_AT], row[UNIT_END] = unit_at, unit_end
        row[POINTS_AT], row[POINTS_END] = first_point, totals[POINTS]
    return 0

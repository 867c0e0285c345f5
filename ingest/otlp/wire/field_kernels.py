"""Fields: the numbers of opentelemetry/proto/metrics/v1/metrics.proto, and the columns of the tables made of them.

The kinds of a metric are numbered in the order of its `data`. A point's fields have a role, because each kind of point
has other numbers for the same fields. The helpers read what several kinds of messages share.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import shift_right
from tsdb.codec.jit import helper
from tsdb.codec.protobuf_kernels import FIXED64, LENGTH, VARINT, next_field

GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY = range(5)
KINDS = ("gauge", "sum", "histogram", "exponential histogram", "summary")
KIND_OF_FIELD = np.array([-1, -1, -1, -1, -1, GAUGE, -1, SUM, -1, HISTOGRAM, EXPONENTIAL, SUMMARY])
DELTA, CUMULATIVE = 1, 2  # AggregationTemporality; 0 is unspecified.
NO_RECORDED_VALUE = 1  # Bit of a point's flags.
# Kinds of an attribute's value, by the number of its field in AnyValue. 0: no value.
NOTHING, STRING, BOOL, INT, DOUBLE, ARRAY, MAP, BYTES = range(8)
# Meanings of the fields of a point.
(
    IGNORED, ATTRIBUTE, START_TIME, TIME, DOUBLE_VALUE, INT_VALUE, COUNT, TOTAL, BUCKET_COUNTS, BOUNDS, QUANTILE, SCALE,
    ZERO_COUNT, ZERO_THRESHOLD, POSITIVE, NEGATIVE, FLAGS, EXEMPLAR,
) = range(18)  # fmt: skip
_NUMBER_POINT = {
    2: START_TIME, 3: TIME, 4: DOUBLE_VALUE, 5: EXEMPLAR, 6: INT_VALUE, 7: ATTRIBUTE, 8: FLAGS,
}  # fmt: skip
_POINT_FIELDS = (
    _NUMBER_POINT,
    _NUMBER_POINT,
    {
        2: START_TIME, 3: TIME, 4: COUNT, 5: TOTAL, 6: BUCKET_COUNTS, 7: BOUNDS, 8: EXEMPLAR, 9: ATTRIBUTE, 10: FLAGS,
    },
    {
        1: ATTRIBUTE, 2: START_TIME, 3: TIME, 4: COUNT, 5: TOTAL, 6: SCALE, 7: ZERO_COUNT, 8: POSITIVE, 9: NEGATIVE,
        10: FLAGS, 11: EXEMPLAR, 14: ZERO_THRESHOLD,
    },
    {2: START_TIME, 3: TIME, 4: COUNT, 5: TOTAL, 6: QUANTILE, 7: ATTRIBUTE, 8: FLAGS},
)  # fmt: skip
FIELD_MAX = 15
ROLES = np.array([[fields.get(number, IGNORED) for number in range(FIELD_MAX + 1)] for fields in _POINT_FIELDS])
ATTRIBUTE_FIELDS = np.array([7, 7, 9, 1, 7])
# Columns of the tables. `*_AT` and `*_END` are a half-open span: of the request's bytes, or of another table.
(RESOURCE_AT, RESOURCE_END, RESOURCE_ATTRIBUTES), RESOURCE_COLUMNS = range(3), 3
(SCOPE_AT, SCOPE_END), SCOPE_COLUMNS = range(2), 2
(
    METRIC_RESOURCE, METRIC_SCOPE, METRIC_KIND, METRIC_TEMPORALITY, METRIC_MONOTONIC, NAME_AT, NAME_END, HELP_AT,
    HELP_END, UNIT_AT, UNIT_END, POINTS_AT, POINTS_END,
) = range(13)  # fmt: skip
METRIC_COLUMNS = 13
# POINT_VALUE has the bits of a float64, or an integer if POINT_INTEGER is 1. POINT_SUM and POINT_ZERO_THRESHOLD have
# bits of a float64. COUNTS and NEGATIVES are spans of the table of counts, BOUNDS of the table of bounds. Of a summary
# they have the values and the quantiles.
(
    POINT_AT, POINT_END, POINT_METRIC, POINT_TIME, POINT_FLAGS, POINT_VALUE, POINT_COUNT, POINT_SUM, POINT_HAS_SUM,
    ATTRIBUTES, ODD_AT, COUNTS_AT, COUNTS_END, BOUNDS_AT, BOUNDS_END, NEGATIVES_AT, NEGATIVES_END, POSITIVE_OFFSET,
    NEGATIVE_OFFSET, POINT_SCALE, POINT_ZERO_COUNT, POINT_ZERO_THRESHOLD, POINT_INTEGER,
    ATTRIBUTE_BYTES, POINT_START,
) = range(25)  # fmt: skip
POINT_COLUMNS = 25
# Values that Python has to turn into text: doubles, arrays, maps, bytes.
(ODD_KIND, ODD_VALUE_AT, ODD_VALUE_END), ODD_COLUMNS = range(3), 3
(EXEMPLAR_POINT, EXEMPLAR_AT, EXEMPLAR_END), EXEMPLAR_COLUMNS = range(3), 3
# The tables in the order that the kernels take: two-dimensional ones first, then (counts, bounds).
RESOURCE_TABLE, SCOPE_TABLE, METRIC_TABLE, POINT_TABLE, ODD_TABLE, EXEMPLAR_TABLE = range(6)
Int64Tables: TypeAlias = tuple[NDArray[np.int64], ...]
# The numbers are those of the dimensions of each array, and of the arrays.
PlainTables: TypeAlias = Annotated[Int64Tables, 2, 6]
NumberTables: TypeAlias = Annotated[Int64Tables, 1, 2]
# Sizes of the tables, and other counts of the scan.
RESOURCES, SCOPES, METRICS, POINTS, COUNTS, BOUNDS_SIZE, ODD, EXEMPLARS, START_TIMES, ROWS, ERROR_AT = range(11)
TOTALS = 11


@helper
def zigzag(value: int) -> int:
    """The signed number of a sint32."""
    value &= 0xFFFFFFFF
    return int(shift_right(value, 1)) ^ -(value & 1)


@helper
def read_attribute(data: NDArray[np.uint8], pos: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Read a KeyValue. Returns (0 or ~byte of an error, start and end of the key, kind of the value, its start or
    number, its end)."""
    key_at, key_end, kind, value, value_end = pos, pos, NOTHING, pos, pos
    while pos < end:
        pos, number, wire, start, stop = next_field(data, pos, end)
        if pos < 0:
            return pos, 0, 0, 0, 0, 0
        if wire != LENGTH:
            continue
        if number == 1:
            key_at, key_end = start, stop
        elif number == 2:
            kind, value, value_end = NOTHING, start, start
            at = start
            while at < stop:
                at, number, wire, inner, inner_end = next_field(data, at, stop)
                if at < 0:
                    return at, 0, 0, 0, 0, 0
                fits = wire == (VARINT if number in (BOOL, INT) else FIXED64 if number == DOUBLE else LENGTH)
                if fits and number <= BYTES:
                    kind, value, value_end = number, inner, inner_end
    return 0, key_at, key_end, kind, value, value_end

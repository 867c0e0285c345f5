"""Makes native histograms of exponential ones: the columns of the data points of a request.

As Prometheus converts them: bucket i of OpenTelemetry is bucket i + 1 there; a scale above 8 is reduced to 8; a
threshold of 0, which SDKs send, is 1e-128. One of delta temporality has the hint of a gauge, so that no reader looks
for resets of a counter. Empty buckets at both ends are left out, so each side has one span.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.mapping.bucket_kernels import SCALE_MAX
from ingest.otlp.wire.field_kernels import (
    COUNTS_AT,
    COUNTS_END,
    DELTA,
    METRIC_TEMPORALITY,
    NEGATIVE_OFFSET,
    NEGATIVES_AT,
    NEGATIVES_END,
    NO_RECORDED_VALUE,
    POINT_COUNT,
    POINT_FLAGS,
    POINT_METRIC,
    POINT_SCALE,
    POINT_SUM,
    POINT_ZERO_COUNT,
    POINT_ZERO_THRESHOLD,
    POSITIVE_OFFSET,
)
from ingest.otlp.wire.tables import Tables
from tsdb.model.arrays import joined_ranges
from tsdb.model.histograms import (
    GAUGE,
    NO_BUCKETS,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    count_errors,
)
from tsdb.model.stale import STALE_BITS

ZERO_THRESHOLD = 1e-128
_SHIFT_MAX = 63  # A shift of an int64 by more has no meaning; all indexes are 0 or -1 before.


def native_histograms(
    tables: Tables, points: NDArray[np.int64]
) -> tuple[HistogramColumns, dict[int, InvalidHistogram]]:
    """(columns, errors): the histograms of these exponential data points, whose scale is at least SCALE_MIN, and the
    refused ones by index, which have no buckets.

    A point without a recorded value is a stale marker.
    """
    rows = tables.points[points]
    schema = np.minimum(rows[:, POINT_SCALE], SCALE_MAX)
    shift = np.minimum(rows[:, POINT_SCALE] - schema, _SHIFT_MAX)
    is_stale = (rows[:, POINT_FLAGS] & NO_RECORDED_VALUE) != 0
    positive = _Side(tables.counts, rows[:, COUNTS_AT], rows[:, COUNTS_END], rows[:, POSITIVE_OFFSET], shift, is_stale)
    negative = _Side(
        tables.counts, rows[:, NEGATIVES_AT], rows[:, NEGATIVES_END], rows[:, NEGATIVE_OFFSET], shift, is_stale
    )
    thresholds = np.ascontiguousarray(rows[:, POINT_ZERO_THRESHOLD]).view(np.float64)
    thresholds = np.where(thresholds == 0, ZERO_THRESHOLD, thresholds)
    # A row of numbers for each shape. Equal rows are equal shapes.
    table = np.column_stack(
        (schema, thresholds.view(np.int64), positive.first, positive.lengths, negative.first, negative.lengths)
    )
    distinct, shape_of = np.unique(table, axis=0, return_inverse=True)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(positive.lengths + negative.lengths)))
    buckets = np.empty(int(starts[-1]))
    buckets[joined_ranges(starts[:-1], positive.lengths)] = positive.counts
    buckets[joined_ranges(starts[:-1] + positive.lengths, negative.lengths)] = negative.counts
    sums = np.where(is_stale, STALE_BITS, rows[:, POINT_SUM]).view(np.float64)
    is_delta = tables.metrics[rows[:, POINT_METRIC], METRIC_TEMPORALITY] == DELTA
    shapes, errors_of_shapes = _shapes(distinct)
    shape_of = shape_of.reshape(-1)
    columns = HistogramColumns(
        shapes,
        shape_of.astype(np.int32),
        starts,
        buckets,
        np.where(is_stale, 0.0, rows[:, POINT_COUNT].view(np.uint64).astype(np.float64)),
        sums,
        np.where(is_stale, 0.0, rows[:, POINT_ZERO_COUNT].view(np.uint64).astype(np.float64)),
        np.where(is_delta, GAUGE, UNKNOWN).astype(np.uint8),
        np.ones(len(rows), np.bool_),
    )
    refused = np.flatnonzero(np.isin(shape_of, np.fromiter(errors_of_shapes, np.int64, len(errors_of_shapes))))
    if len(refused):
        columns = columns.emptied(refused)
    errors = count_errors(columns)
    return columns, errors | {index: errors_of_shapes[int(shape_of[index])] for index in refused.tolist()}


class _Side:
    """Buckets of one sign of all points, after the reduction of their scale.

    first: int64 (n,), the index of the first bucket, 0 without any. lengths: int64 (n,). counts: float64, joined.
    """

    def __init__(
        self,
        counts: NDArray[np.int64],
        begin: NDArray[np.int64],
        end: NDArray[np.int64],
        offset: NDArray[np.int64],
        shift: NDArray[np.int64],
        is_stale: NDArray[np.bool_],
    ) -> None:
        points = len(begin)
        places = joined_ranges(begin, end - begin)
        of = np.repeat(np.arange(points), end - begin)
        some = (counts[places] != 0) & ~is_stale[of]
        places, of = places[some], of[some]
        index = (places - begin[of] + offset[of] >> shift[of]) + 1
        # Indexes of one point ascend, so its first and last ones bound it.
        edges = np.searchsorted(of, np.arange(points + 1))
        used = edges[1:] > edges[:-1]
        self.first = np.zeros(points, np.int64)
        self.lengths = np.zeros(points, np.int64)
        self.first[used] = index[edges[:-1][used]]
        self.lengths[used] = index[edges[1:][used] - 1] - self.first[used] + 1
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths)))
        self.counts = np.zeros(int(starts[-1]))
        np.add.at(self.counts, starts[of] + index - self.first[of], counts[places].view(np.uint64).astype(np.float64))


def _shapes(table: NDArray[np.int64]) -> tuple[tuple[HistogramShape, ...], dict[int, InvalidHistogram]]:
    """(the shape of each row, errors of those that have no meaning, such as indexes beyond 32 bits)."""
    found: list[HistogramShape] = []
    errors: dict[int, InvalidHistogram] = {}
    for numbers in table.tolist():
        try:
            found.append(_shape(*numbers))
        except InvalidHistogram as error:
            errors[len(found)] = error
            found.append(NO_BUCKETS)
    return tuple(found), errors


def _shape(schema: int, threshold: int, positive: int, positives: int, negative: int, negatives: int) -> HistogramShape:
    return HistogramShape(
        schema,
        float(np.int64(threshold).view(np.float64)),
        ((positive, positives),) if positives else (),
        ((negative, negatives),) if negatives else (),
    )

"""This kernel writes the label sets and samples of all points.

Labels of a point: those of its resource, then its attributes. Attributes with one name after escaping are joined by
`;`, in the order of their keys. Labels with an empty value are left out. Python twin:
tests/support/oracles/otlp_twin.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.mapping.bucket_kernels import SCALE_MIN, unsigned
from ingest.otlp.mapping.label_kernels import (
    BUCKET,
    COUNT_SUFFIX,
    FAMILY,
    INFINITE,
    LE,
    METRIC_CONTEXT,
    METRIC_REFUSED,
    NAME_IN_ARENA,
    NAME_IN_ARENA_END,
    OF_METRIC,
    QUANTILE_LABEL,
    SCALE_TOO_SMALL,
    SUM_SUFFIX,
    TOO_MANY_ATTRIBUTES,
    base_labels,
    write_row,
)
from ingest.otlp.wire.field_kernels import (
    ATTRIBUTES,
    EXPONENTIAL,
    HISTOGRAM,
    METRIC_KIND,
    NO_RECORDED_VALUE,
    POINT_COUNT,
    POINT_FLAGS,
    POINT_HAS_SUM,
    POINT_INTEGER,
    POINT_METRIC,
    POINT_SCALE,
    POINT_SUM,
    POINT_TIME,
    POINT_VALUE,
    SUMMARY,
)
from tsdb.codec.jit import Array2, request_kernel
from tsdb.codec.memory_kernels import as_int64
from tsdb.model.stale import STALE_BITS

NS_PER_MS = np.uint64(1_000_000)


@request_kernel
def series_kernel(
    data: NDArray[np.uint8],
    arena: NDArray[np.uint8],
    metrics: Array2[np.int64],
    families: Array2[np.int64],
    contexts: Array2[np.int64],
    points: Array2[np.int64],
    spans: Array2[np.int64],
    bucket_values: NDArray[np.float64],
    bucket_texts: Array2[np.int64],
    odd_texts: Array2[np.int64],
    escapes: bool,
    keeps_native: bool,
    attributes: Array2[np.int64],
    names: NDArray[np.uint8],
    base: NDArray[np.uint8],
    out: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    row_points: NDArray[np.int64],
    refused: NDArray[np.int64],
) -> int:
    """Write the rows and return their number. A refused point has one row without labels, and its cause in `refused`.

    keeps_native: an exponential histogram has one row, whose value is its sum. attributes, names, base: scratch memory
    for one point.

    """
    bits = as_int64(values)
    rows = cursor = 0
    for p in range(points.shape[0]):
        point = points[p]
        metric = point[POINT_METRIC]
        kind, family = metrics[metric, METRIC_KIND], families[metric]
        first, base_end, cut_at, cut_end = rows, 0, 0, 0
        if family[METRIC_REFUSED] != 0:
            cause = OF_METRIC
        elif point[ATTRIBUTES] > attributes.shape[0]:
            cause = TOO_MANY_ATTRIBUTES
        elif kind == EXPONENTIAL and point[POINT_SCALE] < SCALE_MIN:
            cause = SCALE_TOO_SMALL
        else:
            base_end, cause, cut_at, cut_end = base_labels(
                data, arena, contexts, family[METRIC_CONTEXT], point, kind, odd_texts, escapes, attributes, names, base
            )
        refused[p] = cause
        name, name_end = family[NAME_IN_ARENA], family[NAME_IN_ARENA_END]
        if cause != 0:
            values[rows] = 0.0
            rows += 1
        elif kind in (HISTOGRAM, SUMMARY) or (kind == EXPONENTIAL and not keeps_native):
            if point[POINT_HAS_SUM] != 0 or kind == SUMMARY:
                cursor = write_row(arena, name, name_end, SUM_SUFFIX, base, base_end, 0, 0, FAMILY, 0, 0, out, cursor)
                bits[rows], label_starts[rows + 1] = point[POINT_SUM], cursor
                rows += 1
            cursor = write_row(arena, name, name_end, COUNT_SUFFIX, base, base_end, 0, 0, FAMILY, 0, 0, out, cursor)
            values[rows], label_starts[rows + 1] = unsigned(point[POINT_COUNT]), cursor
            rows += 1
            suffix, label = (FAMILY, QUANTILE_LABEL) if kind == SUMMARY else (BUCKET, LE)
            for b in range(spans[p, 0], spans[p, 1]):
                cursor = write_row(
                    arena, name, name_end, suffix, base, base_end, cut_at, cut_end, label, bucket_texts[b, 0],
                    bucket_texts[b, 1], out, cursor,
                )  # fmt: skip
                values[rows], label_starts[rows + 1] = bucket_values[b], cursor
                rows += 1
            if kind != SUMMARY:
                cursor = write_row(
                    arena, name, name_end, BUCKET, base, base_end, cut_at, cut_end, LE, INFINITE, INFINITE + 4, out,
                    cursor,
                )  # fmt: skip
                values[rows], label_starts[rows + 1] = unsigned(point[POINT_COUNT]), cursor
                rows += 1
        else:
            cursor = write_row(arena, name, name_end, FAMILY, base, base_end, 0, 0, FAMILY, 0, 0, out, cursor)
            if kind == EXPONENTIAL:
                bits[rows] = point[POINT_SUM]
            elif point[POINT_INTEGER] != 0:
                values[rows] = float(point[POINT_VALUE])
            else:
                bits[rows] = point[POINT_VALUE]
            rows += 1
        label_starts[rows] = cursor
        time_ms = int(np.uint64(point[POINT_TIME]) // NS_PER_MS)
        for row in range(first, rows):
            ts_ms[row], row_points[row] = time_ms, p
            if point[POINT_FLAGS] & NO_RECORDED_VALUE:
                bits[row] = STALE_BITS
    return rows

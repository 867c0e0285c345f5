"""Native histograms on the wire (proto/tsdb/v1/common.proto): columns to a message and back, of writes and of queries.

A message that is read is checked before anything relies on it. No Python object exists for a histogram, only for each
of their shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import (
    NO_BUCKETS,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    Span,
    count_errors,
    narrow_spans,
)
from tsdb.v1 import common_pb2

SHAPE_PARTS_MAX = 1 << 17
"""Most shapes, spans and custom bounds of one message together: each is a Python object once it is read."""

_U8, _U32, _I32, _F64 = np.dtype("<u1"), np.dtype("<u4"), np.dtype("<i4"), np.dtype("<f8")
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class WiredHistograms:
    """n histograms of a message. columns: those of all n; a refused histogram has no buckets there. histogram_of: int64
    (samples,), the index of each sample's histogram, -1 for a float. errors: the refused ones, by index."""

    columns: HistogramColumns
    histogram_of: NDArray[np.int64]
    errors: Mapping[int, InvalidRequest]


def shape_parts(shape: HistogramShape) -> int:
    """How much of SHAPE_PARTS_MAX a shape takes."""
    return 1 + len(shape.positive) + len(shape.negative) + len(shape.bounds)


def encode_histograms(columns: HistogramColumns, histogram_of: NDArray[np.int64]) -> common_pb2.Histograms:
    """The message. histogram_of: int64 (samples,), -1 for a float; each histogram is that of one sample.

    Shapes that no histogram uses are left out, and an offset beyond 32 bits becomes two spans.
    """
    samples = np.flatnonzero(histogram_of >= 0)
    found = columns.take(histogram_of[samples])
    used, shape_of = np.unique(found.shape_of, return_inverse=True)
    shapes = [found.shapes[index] for index in used.tolist()]
    sides = [narrow_spans(side) for shape in shapes for side in (shape.positive, shape.negative)]
    return common_pb2.Histograms(
        samples=samples.astype(_U32).tobytes(),
        shape_of=shape_of.astype(_U32).tobytes(),
        bucket_counts=np.diff(found.starts).astype(_U32).tobytes(),
        buckets=found.buckets.astype(_F64).tobytes(),
        counts=found.counts.astype(_F64).tobytes(),
        zero_counts=found.zero_counts.astype(_F64).tobytes(),
        hints=found.hints.astype(_U8).tobytes(),
        is_integer=found.is_integer.astype(_U8).tobytes(),
        schemas=np.array([shape.schema for shape in shapes], _I32).tobytes(),
        zero_thresholds=np.array([shape.zero_threshold for shape in shapes], _F64).tobytes(),
        span_counts=np.array([len(side) for side in sides], _U32).tobytes(),
        spans=np.array([span for side in sides for span in side], _I32).tobytes(),
        bound_counts=np.array([len(shape.bounds) for shape in shapes], _U32).tobytes(),
        bounds=np.array([bound for shape in shapes for bound in shape.bounds], _F64).tobytes(),
    )


def decode_histograms(message: common_pb2.Histograms, sums: NDArray[np.float64]) -> WiredHistograms:
    """The histograms of a message with these samples; sums: the float value of each.

    Raises ValueError for arrays that do not fit together, and for more than SHAPE_PARTS_MAX parts of shapes.
    """
    samples = _unpack(message, "samples", _U32).astype(np.int64)
    count = len(samples)
    if (np.diff(samples) <= 0).any() or (count and int(samples[-1]) >= len(sums)):
        raise ValueError(f"samples of histograms must ascend and be below {len(sums)}")
    shape_of = _unpack(message, "shape_of", _U32, count).astype(np.int64)
    widths = _unpack(message, "bucket_counts", _U32, count).astype(np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(widths)))
    shapes, bad_shapes = _shapes(message, count)
    if count and int(shape_of.max()) >= len(shapes):
        raise ValueError(f"shape_of has {int(shape_of.max())}, there are {len(shapes)} shapes")
    columns = HistogramColumns(
        shapes,
        shape_of.astype(np.int32),
        starts,
        _unpack(message, "buckets", _F64, int(starts[-1])),
        _unpack(message, "counts", _F64, count),
        sums[samples],
        _unpack(message, "zero_counts", _F64, count),
        _unpack(message, "hints", _U8, count),
        _unpack(message, "is_integer", _U8, count) != 0,
    )
    histogram_of = np.full(len(sums), -1, np.int64)
    histogram_of[samples] = np.arange(count)
    columns, errors = _checked(columns, bad_shapes)
    return WiredHistograms(columns, histogram_of, errors)


def _checked(
    columns: HistogramColumns, bad_shapes: Mapping[int, InvalidHistogram]
) -> tuple[HistogramColumns, dict[int, InvalidRequest]]:
    """The columns without the buckets of refused histograms, and the errors of these, by index."""
    errors: dict[int, InvalidRequest] = {}
    widths = np.array([shape.buckets for shape in columns.shapes], np.int64)[columns.shape_of]
    for one in np.flatnonzero(np.diff(columns.starts) != widths).tolist():
        errors[one] = InvalidHistogram("invalid histogram: spans and counts differ", reason="histogram_spans_mismatch")
    is_bad = np.isin(columns.shape_of, np.fromiter(bad_shapes, np.int64, len(bad_shapes)))
    errors |= {one: bad_shapes[int(columns.shape_of[one])] for one in np.flatnonzero(is_bad).tolist()}
    if errors:
        columns = columns.emptied(np.fromiter(errors, np.int64, len(errors)))
    return columns, errors | {one: error for one, error in count_errors(columns).items() if one not in errors}


def _shapes(
    message: common_pb2.Histograms, count: int
) -> tuple[tuple[HistogramShape, ...], dict[int, InvalidHistogram]]:
    """(all shapes, errors of those that have no meaning, by index)."""
    schemas = _unpack(message, "schemas", _I32)
    if len(schemas) > count:
        raise ValueError(f"{len(schemas)} shapes of {count} histograms: leave out what no histogram uses")
    thresholds = _unpack(message, "zero_thresholds", _F64, len(schemas)).tolist()
    span_ends = _ends(_unpack(message, "span_counts", _U32, 2 * len(schemas)))
    bound_ends = _ends(_unpack(message, "bound_counts", _U32, len(schemas)))
    parts = len(schemas) + span_ends[-1] + bound_ends[-1]
    spans = _unpack(message, "spans", _I32, 2 * span_ends[-1]).reshape(-1, 2)
    bounds = _unpack(message, "bounds", _F64, bound_ends[-1])
    if parts > SHAPE_PARTS_MAX:
        raise ValueError(
            f"{parts} shapes, spans and custom bounds, the limit is {SHAPE_PARTS_MAX}: send fewer histograms at once"
        )
    found: list[HistogramShape] = []
    errors: dict[int, InvalidHistogram] = {}
    for number, schema in enumerate(schemas.tolist()):
        first, middle, end = span_ends[2 * number : 2 * number + 3]
        try:
            shape = HistogramShape(
                schema,
                thresholds[number],
                _pairs(spans[first:middle]),
                _pairs(spans[middle:end]),
                tuple(bounds[bound_ends[number] : bound_ends[number + 1]].tolist()),
            )
        except InvalidHistogram as error:
            errors[number], shape = error, NO_BUCKETS
        found.append(shape)
    return tuple(found), errors


def _pairs(spans: NDArray[np.int32]) -> tuple[Span, ...]:
    return tuple((offset, length) for offset, length in spans.tolist())


def _ends(counts: NDArray[np.uint32]) -> list[int]:
    return [0, *np.cumsum(counts, dtype=np.int64).tolist()]


def _unpack(
    message: common_pb2.Histograms, name: str, dtype: np.dtype[_Scalar], count: int | None = None
) -> NDArray[_Scalar]:
    data: bytes = getattr(message, name)
    items, rest = divmod(len(data), dtype.itemsize)
    if rest:
        raise ValueError(f"{name} of histograms has {len(data)} bytes, not a multiple of {dtype.itemsize}")
    if count is not None and items != count:
        raise ValueError(f"{name} of histograms has {items} items, want {count}")
    return np.frombuffer(data, dtype)

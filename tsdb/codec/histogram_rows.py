"""Histogram rows: converts histograms of samples to an Arrow column of structs and back, for tables that other programs
read. Pure.

A row has the schema, the zero threshold, spans and bounds of its shape beside its counts, and is null for a float. Rows
in succession with equal shapes are found by comparing columns, so only the first of them is read as Python objects.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails, numbered
from tsdb.model.errors import CorruptData
from tsdb.model.histograms import HINT_NAMES, HistogramColumns, HistogramShape, InvalidHistogram, Span, narrow_spans

_SPANS = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("offset", pa.int32(), nullable=False), pa.field("length", pa.int32(), nullable=False)]),
        nullable=False,
    )
)
_DOUBLES = pa.list_(pa.field("element", pa.float64(), nullable=False))
HISTOGRAM = pa.struct(
    [
        ("schema", pa.int32()),
        ("zero_threshold", pa.float64()),
        ("zero_count", pa.float64()),
        ("count", pa.float64()),
        ("sum", pa.float64()),
        ("positive_spans", _SPANS),
        ("positive_counts", _DOUBLES),
        ("negative_spans", _SPANS),
        ("negative_counts", _DOUBLES),
        ("custom_bounds", _DOUBLES),
        ("reset_hint", pa.string()),
        ("is_integer", pa.bool_()),
    ]
)
"""Type of the column."""


def histogram_column(details: SampleDetails | None, samples: int) -> pa.Array:
    """The histograms of n samples as structs, null for floats."""
    if details is None or details.histograms is None or details.histogram_of is None:
        return pa.nulls(samples, HISTOGRAM)
    of = pa.array(details.histogram_of, mask=details.histogram_of < 0)
    return _structs(details.histograms).take(of)


def start_column(details: SampleDetails | None, samples: int) -> pa.Array:
    """The start timestamps of n samples as timestamps in microseconds, null where a sample has none."""
    kind = pa.timestamp("us", "UTC")
    if details is None or details.start_ms is None:
        return pa.nulls(samples, kind)
    return pa.array(details.start_ms * 1000, kind, mask=details.start_ms == 0)


def _structs(columns: HistogramColumns) -> pa.StructArray:
    used, number = np.unique(columns.shape_of, return_inverse=True)
    shapes, shape_of = [columns.shapes[shape] for shape in used.tolist()], pa.array(number)
    positive = np.array([shape.positive_buckets for shape in shapes], np.int64)[number]
    widths = np.diff(columns.starts)
    within = np.arange(len(columns.buckets)) - np.repeat(columns.starts[:-1], widths)
    is_positive = within < np.repeat(positive, widths)
    fields = [
        pa.array([shape.schema for shape in shapes], pa.int32()).take(shape_of),
        pa.array([shape.zero_threshold for shape in shapes], pa.float64()).take(shape_of),
        pa.array(columns.zero_counts),
        pa.array(columns.counts),
        pa.array(columns.sums),
        _spans_column([shape.positive for shape in shapes]).take(shape_of),
        _lists(positive, columns.buckets[is_positive]),
        _spans_column([shape.negative for shape in shapes]).take(shape_of),
        _lists(widths - positive, columns.buckets[~is_positive]),
        pa.array([shape.bounds for shape in shapes], _DOUBLES).take(shape_of),
        pa.array(HINT_NAMES).take(pa.array(columns.hints)),
        pa.array(columns.is_integer),
    ]
    return pa.StructArray.from_arrays(fields, fields=list(HISTOGRAM))


def _spans_column(spans: Sequence[Sequence[Span]]) -> pa.Array:
    rows = [[{"offset": offset, "length": length} for offset, length in narrow_spans(some)] for some in spans]
    return pa.array(rows, _SPANS)


def _lists(lengths: NDArray[np.int64], values: NDArray[np.float64]) -> pa.ListArray:
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values), type=_DOUBLES)


def read_details(histograms: pa.ChunkedArray, starts: pa.ChunkedArray) -> SampleDetails | None:
    """The details in these two columns of n rows, None without any. Raises CorruptData (corrupt_row)."""
    column = _one(histograms)
    given = np.asarray(column.is_valid())
    start_ms = _one(starts).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1000
    if not given.any():
        return SampleDetails(start_ms) if start_ms.any() else None
    try:
        columns = _columns(column.filter(pa.array(given)))
    except (InvalidHistogram, KeyError, ValueError, TypeError) as error:
        raise CorruptData(f"a row has a histogram without a meaning: {error}", reason="corrupt_row") from error
    return SampleDetails(start_ms if start_ms.any() else None, columns, numbered(given))


def _columns(structs: pa.StructArray) -> HistogramColumns:
    """The histograms of rows of which none is null."""
    names = [one.name for one in structs.type]
    of = dict(zip(names, structs.flatten(), strict=True))
    count = len(structs)
    lists = {name: of[name] for name in ("positive_spans", "negative_spans", "custom_bounds")}
    changed = np.ones(count, np.bool_)
    changed[1:] = _differs(of["schema"].to_numpy()) | _differs(of["zero_threshold"].to_numpy().view(np.int64))
    for one in lists.values():
        changed[1:] |= _list_differs(one)
    first = np.flatnonzero(changed)
    rows = pa.array(first)
    parts = (of["schema"], of["zero_threshold"], *lists.values())
    places: dict[HistogramShape, int] = {}
    numbers = [
        places.setdefault(_shape(*row), len(places))
        for row in zip(*(part.take(rows).to_pylist() for part in parts), strict=True)
    ]
    shape_of = np.array(numbers, np.int32)[np.cumsum(changed) - 1]
    buckets, starts = _interleaved(of["positive_counts"], of["negative_counts"])
    widths = np.array([shape.buckets for shape in places], np.int64)[shape_of]
    if (np.diff(starts) != widths).any():
        raise ValueError("counts do not fit the spans")
    hints = pc.index_in(of["reset_hint"], pa.array(HINT_NAMES)).fill_null(0).to_numpy(zero_copy_only=False)
    counts = of["count"].to_numpy()
    return HistogramColumns(
        tuple(places),
        shape_of,
        starts,
        buckets,
        counts,
        of["sum"].to_numpy(),
        of["zero_count"].to_numpy(),
        hints.astype(np.uint8),
        of["is_integer"].to_numpy(zero_copy_only=False) if "is_integer" in of else counts == np.floor(counts),
    )


def _shape(
    schema: int,
    zero_threshold: float,
    positive: list[dict[str, int]],
    negative: list[dict[str, int]],
    bounds: list[float],
) -> HistogramShape:
    spans = [tuple((span["offset"], span["length"]) for span in some) for some in (positive, negative)]
    return HistogramShape(schema, zero_threshold, spans[0], spans[1], tuple(bounds))


def _interleaved(positive: pa.ListArray, negative: pa.ListArray) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(buckets, starts): the positive counts of each row, followed by its negative ones."""
    lengths = [np.diff(one.offsets.to_numpy()).astype(np.int64) for one in (positive, negative)]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths[0] + lengths[1])))
    buckets = np.empty(int(starts[-1]))
    for one, sizes, begin in ((positive, lengths[0], starts[:-1]), (negative, lengths[1], starts[:-1] + lengths[0])):
        within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        buckets[np.repeat(begin, sizes) + within] = one.flatten().to_numpy()
    return buckets, starts


def _differs(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Whether each value but the first differs from the one before."""
    different: NDArray[np.bool_] = values[1:] != values[:-1]
    return different


def _list_differs(lists: pa.ListArray) -> NDArray[np.bool_]:
    """Whether each list but the first differs from the one before."""
    lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    different = _differs(lengths)
    flat = lists.flatten()
    columns = flat.flatten() if pa.types.is_struct(flat.type) else [flat]
    place = np.arange(len(flat))
    before = place - np.repeat(lengths, lengths)
    row = np.repeat(np.arange(len(lengths)), lengths)
    # In a list as long as the one before, an element has its counterpart one list length earlier.
    comparable = np.append(False, ~different)[row]
    for column in columns:
        values = column.to_numpy(zero_copy_only=False)
        unequal = row[comparable][values[place[comparable]] != values[before[comparable]]]
        different[unequal - 1] = True
    return different


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

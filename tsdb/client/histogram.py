"""Histogram: a native histogram as a value, to write one and to look at some. Many are columns (tsdb.model.details)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    HINT_NAMES,
    HistogramColumns,
    HistogramShape,
    ResetHint,
    one_histogram,
    spans_of,
)


@dataclass(frozen=True, slots=True)
class Histogram:
    """A native histogram: `Histogram(schema=3, sum=8.5, positive={0: 4, 1: 2})`.

    schema: -4 to 8; bucket i of `positive` ends at 2 ** (i * 2 ** -schema), that end included, and `negative` mirrors
    it. Or bounds, the upper ends of buckets, ascending, with schema -53: bucket i of `positive` ends at bounds[i], and
    one more has no end. positive, negative: observations of each bucket by its index, not cumulative. count: all
    observations; by default those of the buckets. zero_count: those within zero_threshold of 0. reset_hint: whether
    the counter was reset before this sample; `gauge` for a histogram that is not a counter. is_integer: whether counts
    are whole numbers that sum up to `count`, as those of a counter that is not yet a rate.
    """

    schema: int = CUSTOM_BOUNDS
    sum: float = 0.0
    positive: Mapping[int, float] = field(default_factory=dict)
    negative: Mapping[int, float] = field(default_factory=dict)
    count: float | None = None
    zero_count: float = 0.0
    zero_threshold: float = 0.0
    bounds: Sequence[float] = ()
    reset_hint: ResetHint = "unknown"
    is_integer: bool = True

    def __post_init__(self) -> None:
        if self.reset_hint not in HINT_NAMES:
            raise InvalidRequest(
                f"reset_hint {self.reset_hint!r} is unknown; known: {', '.join(HINT_NAMES)}",
                reason="histogram_unknown_hint",
            )
        if self.count is None:
            observations = (*self.positive.values(), *self.negative.values(), self.zero_count)
            object.__setattr__(self, "count", float(np.sum(observations)))

    def columns(self) -> HistogramColumns:
        """Columns with this histogram alone. Raises InvalidHistogram for buckets without a meaning."""
        sides = [dict(sorted(side.items())) for side in (self.positive, self.negative)]
        counts = np.array([count for side in sides for count in side.values()], np.float64)
        spans = [spans_of(np.array([*side], np.int64)) for side in sides]
        shape = HistogramShape(
            self.schema, float(self.zero_threshold), spans[0], spans[1], tuple(map(float, self.bounds))
        )
        assert self.count is not None, "set with the value"
        return one_histogram(
            shape,
            counts,
            count=self.count,
            total=self.sum,
            zero_count=self.zero_count,
            hint=HINT_NAMES.index(self.reset_hint),
            is_integer=self.is_integer,
        )


def histograms_of(details: SampleDetails | None, start: int, end: int) -> list[Histogram | None]:
    """The histograms of the samples [start, end), None for a number."""
    if details is None or details.histograms is None or details.histogram_of is None:
        return [None] * (end - start)
    columns = details.histograms
    return [None if of < 0 else _value(columns, of) for of in details.histogram_of[start:end].tolist()]


def _value(columns: HistogramColumns, row: int) -> Histogram:
    shape = columns.shapes[columns.shape_of[row]]
    counts = columns.buckets[columns.starts[row] : columns.starts[row + 1]].tolist()
    pairs = list(zip(shape.indexes.tolist(), counts, strict=True))
    return Histogram(
        shape.schema,
        float(columns.sums[row]),
        dict(pairs[: shape.positive_buckets]),
        dict(pairs[shape.positive_buckets :]),
        float(columns.counts[row]),
        float(columns.zero_counts[row]),
        shape.zero_threshold,
        shape.bounds,
        HINT_NAMES[columns.hints[row]],
        bool(columns.is_integer[row]),
    )

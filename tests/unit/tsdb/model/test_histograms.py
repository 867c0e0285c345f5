"""Columns of histograms: what has no meaning is refused by name, and samples keep their shapes and counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    PROBLEMS,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    count_problems,
    joined_histograms,
    no_histograms,
)

SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=4).map(tuple)
SHAPES = st.builds(HistogramShape, st.integers(-4, 8), st.sampled_from([0.0, 0.001]), SPANS, SPANS)


def columns(
    shape: HistogramShape,
    buckets: list[float],
    count: float,
    total: float = 1.0,
    zero_count: float = 0.0,
    hint: int = 0,
    *,
    is_integer: bool = True,
) -> HistogramColumns:
    return HistogramColumns(
        (shape,),
        np.zeros(1, np.int32),
        np.array([0, len(buckets)]),
        np.array(buckets, np.float64),
        np.array([count]),
        np.array([total]),
        np.array([zero_count]),
        np.array([hint], np.uint8),
        np.array([is_integer]),
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"schema": 9}, "histogram_invalid_schema"),
        ({"schema": -5}, "histogram_invalid_schema"),
        ({"schema": 0, "positive": ((0, 2), (-1, 1))}, "histogram_span_negative_offset"),
        ({"schema": 0, "negative": ((0, 2), (-1, 1))}, "histogram_span_negative_offset"),
        ({"schema": 0, "positive": ((0, -1),)}, "histogram_span_negative_length"),
        ({"schema": 0, "positive": ((-(1 << 31), 1),)}, "histogram_span_out_of_range"),
        ({"schema": 0, "positive": ((1 << 31, 1),)}, "histogram_span_out_of_range"),
        ({"schema": 0, "positive": ((0, (1 << 31) - 1),)}, "histogram_too_many_buckets"),
        ({"schema": 0, "bounds": (1.0,)}, "histogram_exponential_custom_bounds"),
        ({"schema": CUSTOM_BOUNDS, "bounds": (1.0, math.nan)}, "histogram_custom_bounds_nan"),
        ({"schema": CUSTOM_BOUNDS, "bounds": (1.0, 1.0)}, "histogram_custom_bounds_invalid"),
        ({"schema": CUSTOM_BOUNDS, "bounds": (1.0, math.inf)}, "histogram_custom_bounds_infinite"),
        ({"schema": CUSTOM_BOUNDS, "zero_threshold": 0.1}, "histogram_custom_buckets_zero_threshold"),
        ({"schema": CUSTOM_BOUNDS, "negative": ((0, 1),)}, "histogram_custom_buckets_negative"),
        ({"schema": CUSTOM_BOUNDS, "positive": ((-1, 1),)}, "histogram_span_negative_offset"),
        ({"schema": CUSTOM_BOUNDS, "bounds": (1.0,), "positive": ((0, 3),)}, "histogram_custom_bounds_few"),
    ],
)
def test_a_shape_without_a_meaning_is_refused_by_name(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidHistogram) as error:
        HistogramShape(**fields)  # type: ignore[arg-type]  # Rows of a table.
    assert error.value.reason == reason


def test_indexes_follow_the_spans() -> None:
    shape = HistogramShape(0, positive=((-2, 2), (3, 1)), negative=((5, 2),))
    assert shape.indexes.tolist() == [-2, -1, 3, 5, 6]


PLAIN = HistogramShape(0, 0.001, positive=((0, 2),))
CUSTOM = HistogramShape(CUSTOM_BOUNDS, positive=((0, 2),), bounds=(1.0,))


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        (columns(PLAIN, [1, 2], 3), ""),
        (columns(PLAIN, [1, 2], 4, zero_count=1), ""),
        (columns(PLAIN, [1, 2], 5, math.nan), ""),
        (columns(PLAIN, [1, 2], 7, is_integer=False), ""),
        (columns(PLAIN, [1, math.nan], 7, is_integer=False), ""),
        (columns(PLAIN, [1, -2], -1), "histogram_negative_bucket_count"),
        (columns(PLAIN, [1, 2], 2, zero_count=-1), "histogram_negative_bucket_count"),
        (columns(PLAIN, [0, 0], -1), "histogram_negative_count"),
        (columns(PLAIN, [1, 2], 4), "histogram_count_mismatch"),
        (columns(PLAIN, [1, 2], 2, math.nan), "histogram_count_not_big_enough"),
        (columns(CUSTOM, [1, 2], 4, zero_count=1), "histogram_custom_buckets_zero_count"),
        (columns(PLAIN, [2.0**54, 0], 2.0**54), "histogram_count_inexact"),
        (columns(PLAIN, [1, 2], 3, hint=4), "histogram_unknown_hint"),
    ],
)
def test_counts_are_judged_by_the_rules_of_prometheus(sample: HistogramColumns, problem: str) -> None:
    assert [PROBLEMS[code] for code in count_problems(sample).tolist()] == [problem]


def test_counts_that_do_not_fit_their_spans_are_refused() -> None:
    with pytest.raises(InvalidHistogram) as error:
        count_problems(columns(PLAIN, [1], 1))
    assert error.value.reason == "histogram_spans_mismatch"


@given(st.lists(SHAPES, max_size=6))
def test_joined_samples_keep_their_shapes_and_counts(shapes: list[HistogramShape]) -> None:
    parts = []
    for number, shape in enumerate(shapes):
        counts = [float(number + index) for index in range(len(shape.indexes))]
        parts.append(columns(shape, counts, sum(counts)))
    whole = joined_histograms([no_histograms(), *parts])
    assert len(set(whole.shapes)) == len(whole.shapes)
    assert [whole.shapes[number] for number in whole.shape_of.tolist()] == shapes
    assert not count_problems(whole).any()
    for index, part in enumerate(parts):
        one = whole.take(np.array([index]))
        assert one.buckets.tolist() == part.buckets.tolist()
        assert one.counts.tolist() == part.counts.tolist()


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [3, 0, 2, 3], [0, 0, 0, 0], []])
def test_taken_samples_keep_their_buckets(sizes: list[int]) -> None:
    """Samples with as many buckets each are taken another way than others."""
    parts = [columns(HistogramShape(0, 0.0, ((0, size),)), [float(10 * row + at) for at in range(size)], 1.0)
             for row, size in enumerate(sizes)]  # fmt: skip
    found = joined_histograms([*parts, no_histograms()])
    for rows in ([], [2, 0, 0, 3], [0, 1, 2, 3]) if sizes else ([],):
        taken = found.take(np.array(rows, np.int64))
        expected = [found.buckets[found.starts[row] : found.starts[row + 1]].tolist() for row in rows]
        pairs = zip(taken.starts[:-1], taken.starts[1:], strict=True)
        assert [taken.buckets[start:end].tolist() for start, end in pairs] == expected

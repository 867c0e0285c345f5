"""The heatmap of native histograms has each observation in one cell, and the quantiles of the same sums over it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from support.data.detail_cases import BOUNDS, WIDE, histograms
from tsdb.model.histograms import HistogramColumns, HistogramShape, joined_histograms
from tsdb.promql.evaluate.native.histograms import HistogramCells, from_columns
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import Pool, label_sets
from tsdb.ui.answers.heatmap import HEATMAP_ROWS_MAX, MIXED, added_histograms, with_quantiles


def block(columns: HistogramColumns, of: NDArray[np.int64]) -> Block:
    labels = label_sets(Pool(), [{"row": str(row)} for row in range(len(of))])
    cells = HistogramCells(from_columns(columns), of)
    ones = np.ones(of.shape, np.bool_)
    return Block(labels, np.full(of.shape, 7.5), ones, np.zeros(len(of), np.bool_), cells)


def one(shape: HistogramShape, buckets: list[float], zero: float = 0.0) -> HistogramColumns:
    template = replace(histograms([4], 1), shapes=(shape,), shape_of=np.zeros(1, np.int32))
    return replace(
        template,
        starts=np.array([0, len(buckets)]),
        buckets=np.array(buckets),
        counts=np.array([sum(buckets) + zero]),
        sums=np.zeros(1),
        zero_counts=np.array([zero]),
    )


def test_floats_have_no_heatmap() -> None:
    assert added_histograms(block(histograms([0], 1), np.array([[-1]]))) is None


def test_series_are_added_at_each_step_and_gaps_stay_empty() -> None:
    shape = HistogramShape(0, 0.001, ((1, 2),), ((0, 1),))
    columns = joined_histograms([one(shape, [3, 2, 1], 4), one(shape, [30, 20, 10], 40)])
    added = added_histograms(block(columns, np.array([[0, -1, 0], [1, -1, -1]])))
    assert added is not None
    found = added.heatmap()
    assert found.lower.tolist() == [-1.0, -0.001, 1.0, 2.0]
    assert found.upper.tolist() == [-0.5, 0.001, 2.0, 4.0]
    assert found.counts[:, [0, 2]].T.tolist() == [[11, 44, 33, 22], [1, 4, 3, 2]]
    assert np.isnan(found.counts[:, 1]).all()
    assert (found.series, found.notes) == (2, ())


@pytest.mark.parametrize("buckets", [100, 1000, 8000])
def test_many_buckets_become_fewer_rows_without_losing_an_observation(buckets: int) -> None:
    shape = HistogramShape(8, 0.0, ((-buckets // 2, buckets),))
    columns = one(shape, [1.0 + index % 7 for index in range(buckets)])
    added = added_histograms(block(columns, np.array([[0, 0]])))
    assert added is not None
    found = added.heatmap()
    assert len(found.lower) <= HEATMAP_ROWS_MAX
    assert found.counts.sum(axis=0).tolist() == [columns.counts[0]] * 2
    assert (found.lower[1:] == found.upper[:-1]).all()


def test_custom_buckets_keep_the_bounds_that_all_steps_have() -> None:
    other = HistogramShape(BOUNDS.schema, positive=((0, 3),), bounds=(0.1, 2.5))
    columns = joined_histograms([one(BOUNDS, [1, 2, 3, 4]), one(other, [5, 6, 7])])
    added = added_histograms(block(columns, np.array([[0, 1]])))
    assert added is not None
    found = added.heatmap()
    assert found.upper.tolist() == [0.1, 2.5, np.inf]
    assert found.lower.tolist() == [-np.inf, 0.1, 2.5]
    assert found.counts.T.tolist() == [[1, 5, 4], [5, 6, 7]]


def test_many_custom_bounds_become_fewer_rows() -> None:
    bounds = tuple(map(float, range(1, 1000)))
    shape = HistogramShape(BOUNDS.schema, positive=((0, 1000),), bounds=bounds)
    added = added_histograms(block(one(shape, [2.0] * 1000), np.array([[0]])))
    assert added is not None
    found = added.heatmap()
    assert len(found.upper) <= HEATMAP_ROWS_MAX
    assert found.counts.sum() == 2000


@pytest.mark.parametrize("of", [[[0, 0, 1]], [[0, 0, 0], [0, 0, 1]]])
def test_custom_and_exponential_buckets_leave_gaps_with_a_note(of: list[list[int]]) -> None:
    columns = joined_histograms([one(WIDE, [1.0] * 12), one(BOUNDS, [1, 2, 3, 4])])
    added = added_histograms(block(columns, np.array(of)))
    assert added is not None
    assert added.notes == (MIXED,)
    assert added.present.tolist() == [True, True, False]
    assert added.heatmap().counts.shape[1] == 3


def test_quantiles_are_those_of_the_sums_and_floats_follow() -> None:
    columns = joined_histograms([one(HistogramShape(0, positive=((1, 1),)), [4.0])])
    given = block(columns, np.array([[0, -1], [0, -1], [-1, -1]]))
    added = added_histograms(given)
    assert added is not None
    found = with_quantiles(given, added)
    assert [found.labels.row(row) for row in range(len(found))] == [
        {"quantile": "0.5"}, {"quantile": "0.9"}, {"quantile": "0.99"}, {"row": "0"}, {"row": "1"}, {"row": "2"},
    ]  # fmt: skip
    wanted = [added.histograms.quantiles(np.array([quantile]))[0][0] for quantile in (0.5, 0.9, 0.99)]
    assert found.values[:3, 0].tolist() == wanted
    assert found.present.tolist() == [[True, False]] * 3 + [[False, True]] * 2 + [[True, True]]

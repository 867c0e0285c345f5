"""Reduction: peaks stay, gaps stay, and the number of points is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.ui.answers.graph import reduced, thinned


def test_few_points_are_not_touched() -> None:
    values = np.array([[1.0, 2.0, np.nan, -0.0]])
    drawn = reduced(values, np.array([[True, False, True, True]]), 10)
    assert drawn.at.tolist() == [[0, 1, 2, 3]]
    assert np.isnan(drawn.values[0, [1, 2]]).all()
    assert drawn.values[0, [0, 3]].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("steps", [11, 100, 999, 1000, 1001])
@pytest.mark.parametrize("points", [2, 3, 10, 64])
def test_each_peak_is_drawn_where_it_is(steps: int, points: int) -> None:
    random = np.random.default_rng(steps * points)
    values = random.normal(size=(5, steps))
    peaks = random.integers(0, steps, (5, 2))
    values[np.arange(5), peaks[:, 0]] = 1000.0
    values[np.arange(5), peaks[:, 1]] = -1000.0
    drawn = reduced(values, np.ones(values.shape, np.bool_), points)
    assert drawn.at.shape[1] <= max(points, 2)
    assert (np.diff(drawn.at, axis=1) >= 0).all()
    assert (drawn.at < steps).all()
    assert (drawn.values == np.take_along_axis(values, drawn.at, axis=1)).all()
    assert drawn.values.max(axis=1).tolist() == values.max(axis=1).tolist()
    assert drawn.values.min(axis=1).tolist() == values.min(axis=1).tolist()


def test_a_gap_longer_than_a_stretch_stays_a_gap() -> None:
    present = np.ones((1, 1000), np.bool_)
    present[0, 300:700] = False
    drawn = reduced(np.ones((1, 1000)), present, 100)
    missing = np.isnan(drawn.values[0])
    assert missing.any()
    assert ((drawn.at[0][missing] >= 280) & (drawn.at[0][missing] < 700)).all()


def test_infinite_values_are_kept() -> None:
    values = np.zeros((1, 100))
    values[0, 50] = np.inf
    assert np.isposinf(reduced(values, np.ones((1, 100), np.bool_), 10).values).any()


def test_a_thinned_graph_has_the_same_steps_in_every_series() -> None:
    values = np.arange(3000.0).reshape(3, 1000)
    drawn = thinned(values, np.ones((3, 1000), np.bool_), 100)
    assert drawn.at.shape == (3, 100)
    assert (drawn.at == drawn.at[0]).all()
    assert (drawn.values == values[:, drawn.at[0]]).all()

"""Histograms of a result become columns with the same buckets, and one shape for equal buckets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.data.detail_cases import WIDE, histograms
from tsdb.promql.evaluate.native import stored
from tsdb.promql.evaluate.native.histograms import HistogramCells, NativeHistograms, from_columns
from tsdb.promql.evaluate.native.stored import details_of, stored_columns

COLUMNS = histograms([0] * 4, 5)
SHAPES = [0, 0, 1, 1, 4, 1, 1, 2, 2, 3, 0, 0]


def same(one: NativeHistograms, other: NativeHistograms) -> bool:
    return (
        np.array_equal(one.starts, other.starts)
        and np.array_equal(one.keys, other.keys)
        and np.array_equal(one.buckets.view(np.int64), other.buckets.view(np.int64))
        and np.array_equal(one.numbers.view(np.int64), other.numbers.view(np.int64))
        and np.array_equal(one.whole, other.whole)
    )


@pytest.mark.parametrize("seed", range(5))
def test_columns_have_the_buckets_of_the_histograms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = rng.integers(0, 5, 40).tolist()
    given = from_columns(histograms(shapes, seed, is_integer=False))
    found = stored_columns(given)
    assert same(from_columns(found), given)
    assert len(found.shapes) == len(set(shapes))


def test_buckets_that_were_left_out_leave_gaps() -> None:
    given = from_columns(histograms(SHAPES, 3))
    sparse = without_every_third(given)
    assert same(from_columns(stored_columns(sparse)), sparse)


def without_every_third(given: NativeHistograms) -> NativeHistograms:
    kept = np.arange(len(given.keys)) % 3 != 0
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))[given.starts]
    return replace(given, starts=starts, keys=given.keys[kept], buckets=given.buckets[kept])


def test_hashes_that_collide_change_no_histogram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "splitmix64", lambda keys: np.zeros(len(keys), np.uint64))
    # Two shapes of one width, which differ in their keys alone.
    shifted = replace(COLUMNS, shapes=(WIDE, replace(WIDE, positive=((-21, 6), (2, 4)))))
    given = from_columns(replace(shifted, shape_of=np.array([0, 1, 0, 1], np.int32)))
    assert same(from_columns(stored_columns(given)), given)


def test_no_histogram_is_no_detail() -> None:
    cells = HistogramCells(from_columns(histograms([0], 1)), np.array([-1, 0]))
    assert details_of(cells, cells.of[:1]) is None
    found = details_of(cells, cells.of)
    assert found is not None
    assert found.histogram_of is not None
    assert found.histogram_of.tolist() == [-1, 0]

"""The cuts of a writing task depend on its rows, not on their batches; and every row is accounted for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_backfill.writing.fragments import Cut, SortedRows, cuts

WINDOW_MS = 1_000
Row = tuple[int, int, int, int, int]  # pack, window, series, ts in the window, value


def rows_of(rows: list[Row]) -> SortedRows:
    pack, window, series, at, value = (np.array(column) for column in zip(*rows, strict=True))
    count = len(rows)
    return SortedRows(
        np.zeros(count, np.int32),
        pack.astype(np.uint64),
        window * WINDOW_MS,
        np.zeros(count, np.int32),
        series.astype(np.uint64),
        window * WINDOW_MS + at,
        value.astype(np.float64),
    )


def batched(rows: SortedRows, sizes: list[int]) -> list[SortedRows]:
    borders = np.minimum(np.cumsum([0, *sizes, len(rows)]), len(rows)).tolist()
    return [rows.part(start, end) for start, end in pairwise(borders) if start < end]


def said(made: list[Cut]) -> list[object]:
    fragments = [cut.fragment for cut in made]
    return [
        (
            f.pack_id,
            f.window_start_ms,
            f.series_id.tolist(),
            f.sample_start.tolist(),
            f.ts_ms.tolist(),
            f.value.tolist(),
        )
        for f in fragments
    ]


row = st.tuples(st.integers(0, 2), st.integers(-1, 1), st.integers(0, 3), st.integers(0, 5), st.integers(0, 2))


@given(st.lists(row, min_size=1, max_size=60), st.lists(st.integers(1, 9), max_size=20), st.integers(1, 12))
def test_cuts_do_not_depend_on_batches(rows: list[Row], sizes: list[int], samples_max: int) -> None:
    whole = rows_of(sorted(rows))
    once = list(cuts([whole], samples_max))
    assert said(list(cuts(batched(whole, sizes), samples_max))) == said(once)
    assert sum(cut.fragment.samples + cut.duplicates + cut.conflicts for cut in once) == len(rows)
    assert all(cut.fragment.samples + cut.duplicates + cut.conflicts <= samples_max for cut in once)


@given(st.lists(row, min_size=1, max_size=60))
def test_of_equal_times_the_highest_bits_stand(rows: list[Row]) -> None:
    made = list(cuts([rows_of(sorted(rows))]))
    found = {}
    for cut in made:
        fragment = cut.fragment
        for at, series in enumerate(fragment.series_id.tolist()):
            for n in range(int(fragment.sample_start[at]), int(fragment.sample_start[at + 1])):
                found[fragment.pack_id, series, int(fragment.ts_ms[n])] = float(fragment.value[n])
    highest: dict[tuple[int, int, int], float] = {}
    for pack, window, series, at, value in rows:
        place = pack, series, window * WINDOW_MS + at
        highest[place] = max(highest.get(place, 0.0), float(value))
    assert found == highest
    assert sum(cut.duplicates for cut in made) == len(rows) - len(set(rows))


def test_no_rows_are_no_cuts() -> None:
    assert list(cuts([])) == []


@pytest.mark.parametrize(("samples_max", "sizes"), [(4, [4, 4]), (3, [3, 1, 3, 1]), (8, [8])])
def test_a_large_group_is_cut_between_series_where_it_can_be(samples_max: int, sizes: list[int]) -> None:
    rows = rows_of([(0, 0, series, at, 0) for series in (1, 2) for at in range(4)])
    assert [cut.fragment.samples for cut in cuts([rows], samples_max)] == sizes

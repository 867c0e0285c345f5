"""Sorting and merging of runs agree with dicts: of equal timestamps the last stays, and the overlay wins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from support.examples import examples
from support.kernels import merge_run, sort_run
from tsdb.codec.overlay_kernels import INSERTION_MAX

times = st.lists(st.integers(-50, 50), max_size=2 * INSERTION_MAX + 10)
some_margin = st.integers(0, 3)


def run(ts: list[int], margin: int, room: int = 0) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Writes the run at `margin`. The value of each sample is its position, and its order the negated position. Samples
    around the run must stay.
    """
    size = margin + len(ts) + room + margin
    arrays = np.full(size, 777, np.int64), np.full(size, 777.0), np.full(size, 777, np.int64)
    arrays[0][margin : margin + len(ts)] = ts
    arrays[1][margin : margin + len(ts)] = np.arange(len(ts))
    arrays[2][margin : margin + len(ts)] = -np.arange(len(ts))
    return arrays


@given(times, some_margin, st.booleans())
@settings(max_examples=examples(300))
def test_a_sorted_run_keeps_the_last_of_equal_timestamps(ts: list[int], margin: int, with_orders: bool) -> None:
    got_ts, got_values, orders = run(ts, margin)
    end = sort_run(got_ts, got_values, orders if with_orders else np.empty(0, np.int64), margin, margin + len(ts))
    last = {time: place for place, time in enumerate(ts)}
    assert got_ts[margin:end].tolist() == sorted(last)
    assert got_values[margin:end].tolist() == [last[time] for time in sorted(last)]
    if with_orders:
        assert orders[margin:end].tolist() == [-last[time] for time in sorted(last)]
    assert (got_ts[:margin] == 777).all()
    assert (got_ts[margin + len(ts) :] == 777).all()


@given(times, times, some_margin, st.booleans())
@settings(max_examples=examples(300))
def test_a_merged_run_has_both_and_the_overlays_where_both_have_one(
    ts: list[int], over: list[int], margin: int, with_orders: bool
) -> None:
    ts, over = sorted(set(ts)), sorted(set(over))
    got_ts, got_values, orders = run(ts, margin, room=len(over))
    over_ts, over_values, over_orders = run(over, 1)
    over_values += 1000
    over_orders -= 1000
    none = np.empty(0, np.int64)
    end = merge_run(
        got_ts,
        got_values,
        orders if with_orders else none,
        margin,
        margin + len(ts),
        over_ts,
        over_values,
        over_orders if with_orders else none,
        1,
        1 + len(over),
    )
    want = {time: place for place, time in enumerate(ts)}
    want.update({time: 1000 + place for place, time in enumerate(over)})
    assert got_ts[margin:end].tolist() == sorted(want)
    assert got_values[margin:end].tolist() == [want[time] for time in sorted(want)]
    if with_orders:
        assert orders[margin:end].tolist() == [-want[time] for time in sorted(want)]
    assert (got_ts[:margin] == 777).all()
    assert (got_ts[len(got_ts) - margin :] == 777).all()

"""Combined chunks: window by window, merged where a window has several, cut to the requested series and range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.data.chunk_cases import START_MS, WINDOW_MS
from support.data.detail_cases import detailed_fragments
from support.oracles.fragment_twin import bits, fragment_of, samples_of
from tsdb.codec.chunk.chunk import Fragment
from tsdb.head.read.step_kernels import LAST
from tsdb.model.details import joined_details, same_details
from tsdb.model.errors import CorruptData, InvalidRequest
from tsdb.query.history.stretch import Stretch, narrow_fragment
from tsdb.query.reduction import Reduction

Rows = dict[tuple[int, int], tuple[int, int]]


def rows(*samples: tuple[int, int, int, float]) -> Rows:
    """(series, ts, order, value)"""
    return {(series, ts): (order, bits(value)) for series, ts, order, value in samples}


def taken(stretch: Stretch) -> Rows:
    fragment = stretch.take()
    return {} if fragment is None else samples_of(fragment)


def stretch_of(*wanted: int, start_ms: int = 0, end_ms: int = 1000) -> Stretch:
    return Stretch(np.array(wanted, np.uint64), start_ms, end_ms)


BASE = rows((2, 10, 5, 1.0), (2, 20, 5, 2.0), (4, 10, 5, 3.0))
LATE = rows((2, 20, 9, 7.0), (2, 15, 9, 8.0), (3, 11, 9, 9.0))
NEXT = rows((2, 100, 5, 4.0), (4, 110, 5, 5.0))


def test_windows_follow_each_other_and_chunks_of_one_are_merged_by_order() -> None:
    stretch = stretch_of(2, 3, 4)
    for fragment in (fragment_of(BASE), fragment_of(LATE), fragment_of(NEXT, window_start_ms=100)):
        stretch.add(fragment)
    assert taken(stretch) == {**BASE, **LATE, **NEXT}
    assert taken(stretch) == {}, "taken once"


@pytest.mark.parametrize(
    ("wanted", "start_ms", "end_ms", "left"),
    [
        ((4,), 0, 1000, [(4, 10)]),
        ((1, 3, 5), 0, 1000, []),
        ((), 0, 1000, []),
        ((2, 4), 11, 1000, [(2, 20)]),
        ((2, 4), 10, 20, [(2, 10), (4, 10)]),
        ((2, 4), 21, 22, []),
        ((2, (1 << 64) - 1), 0, 1000, [(2, 10), (2, 20)]),
    ],
)
def test_only_the_requested_samples_are_left(
    wanted: tuple[int, ...], start_ms: int, end_ms: int, left: list[tuple[int, int]]
) -> None:
    stretch = stretch_of(*wanted, start_ms=start_ms, end_ms=end_ms)
    stretch.add(fragment_of(BASE))
    assert sorted(taken(stretch)) == left


def test_packs_are_combined_in_any_order() -> None:
    stretch = stretch_of(1, 2, 3, 4)
    first, second = rows((3, 10, 1, 1.0), (3, 120, 1, 2.0)), rows((1, 5, 1, 3.0), (2, 6, 1, 4.0))
    stretch.add(fragment_of(first, pack_id=9))
    stretch.add(fragment_of(second, pack_id=7))
    assert taken(stretch) == {**first, **second}


def test_a_series_in_two_packs_is_corrupt_and_not_two_answers() -> None:
    stretch = stretch_of(2)
    stretch.add(fragment_of(rows((2, 10, 5, 1.0)), pack_id=1))
    stretch.add(fragment_of(rows((2, 10, 6, 2.0)), pack_id=2))
    with pytest.raises(CorruptData) as caught:
        stretch.take()
    assert caught.value.reason == "two_packs"


def test_samples_are_counted_once_their_window_is_whole() -> None:
    stretch = stretch_of(2, 4)
    stretch.add(fragment_of(BASE))
    assert stretch.samples == 0
    stretch.add(fragment_of(NEXT, window_start_ms=100))
    assert stretch.samples == len(BASE)


def test_narrowing_leaves_series_that_are_there() -> None:
    whole: Fragment = fragment_of({**BASE, **LATE})
    left = narrow_fragment(whole, np.array([1, 3, 4], np.uint64))
    assert left is not None
    assert sorted(samples_of(left)) == [(3, 11), (4, 10)]
    assert narrow_fragment(whole, np.array([7], np.uint64)) is None


def test_details_follow_samples_through_windows_and_cuts() -> None:
    given = detailed_fragments()["native_and_starts"]
    other = replace(given, ts_ms=given.ts_ms + WINDOW_MS, window_start_ms=START_MS + WINDOW_MS, details=None)
    last = replace(given, ts_ms=given.ts_ms + 2 * WINDOW_MS, window_start_ms=START_MS + 2 * WINDOW_MS)
    low, high = int(given.ts_ms[4]), int(last.ts_ms[8])
    stretch = stretch_of(0, 14, start_ms=low, end_ms=high)
    for one in (given, other, last):
        stretch.add(one)
    got = stretch.take()
    assert got is not None
    want = []
    for series in (0, 2):
        for one in (given, other, last):
            part = one.part(series, series + 1)
            kept = np.flatnonzero((part.ts_ms >= low) & (part.ts_ms < high))
            want.append((len(kept), None if part.details is None else part.details.take(kept)))
    assert got.series_id.tolist() == [0, 14]
    assert same_details(got.details, joined_details(want))


def test_the_newest_samples_keep_their_details_and_steps_of_histograms_are_refused() -> None:
    given = detailed_fragments()["native_and_starts"]
    newest = Reduction(START_MS, last_n=2).apply(given)
    want = [given.part(at, at + 1).details for at in range(3)]
    assert newest.ts_ms.tolist() == given.ts_ms.reshape(3, 12)[:, -2:].ravel().tolist()
    assert same_details(newest.details, joined_details([(2, one and one.part(10, 12)) for one in want]))
    with pytest.raises(InvalidRequest, match="no values of steps") as refused:
        Reduction(START_MS, 60_000, LAST).apply(given)
    assert refused.value.reason == "native_histograms"
    assert Reduction(START_MS, 60_000, LAST).apply(detailed_fragments()["starts"]).details is None

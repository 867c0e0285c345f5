"""Each kind of wrong answer is found and counted, and right answers with gaps that are allowed are clean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from tsdb.canary.comparison import Findings, compare
from tsdb.canary.layout import Layout, values_of

LAYOUT = Layout("c", 1000, 2)
TICKS = np.arange(10, 20) * 1000
NONE = np.zeros(len(TICKS), np.bool_)
Answer = list[tuple[bytes, NDArray[np.int64], NDArray[np.float64]]]


def answer(ticks: Sequence[int] = range(10, 20), runs: Sequence[int] | None = None) -> Answer:
    """All series at these seconds. By default the first sample of each series begins a run."""
    ts_ms = np.array(ticks, np.int64) * 1000
    run = np.arange(len(ts_ms)) if runs is None else np.array(runs)
    return [
        (canonical, ts_ms, values_of(np.full(len(ts_ms), row), ts_ms, run))
        for row, canonical in enumerate(LAYOUT.labels)
    ]


def findings(returned: Answer, acknowledged: NDArray[np.bool_] = NONE) -> Findings:
    return compare(LAYOUT, returned, TICKS, acknowledged).findings


def test_a_whole_answer_is_clean() -> None:
    assert findings(answer(), ~NONE) == Findings(exact=20, oldest_ms=10_000)


def test_an_answer_without_samples_is_empty_unless_some_were_acknowledged() -> None:
    assert findings([]).empty
    assert findings([], ~NONE) == Findings(missing=20)


def test_a_later_sample_names_a_missing_one_that_this_process_did_not_write() -> None:
    whole = answer()
    short = [(canonical, np.delete(ts, 4), np.delete(values, 4)) for canonical, ts, values in whole]
    assert findings(short) == Findings(exact=18, missing=2, oldest_ms=10_000)


def test_a_series_that_is_left_out_is_missing() -> None:
    # The last tick is not known to be acknowledged: no later sample names it.
    assert findings(answer()[:1]) == Findings(exact=10, missing=9, oldest_ms=10_000)


def test_a_run_names_samples_before_the_range_only_inside_of_it() -> None:
    assert findings(answer(runs=range(4000, 4010))).clean


def test_a_gap_between_two_runs_is_allowed() -> None:
    assert findings(answer([10, 11, 15, 16], runs=[7, 8, 0, 1])).clean


def test_a_wrong_value_is_a_mismatch_and_not_missing_too() -> None:
    returned = answer()
    returned[1][2][3] += 1
    assert findings(returned, ~NONE) == Findings(exact=19, mismatch=1, oldest_ms=10_000)


@pytest.mark.parametrize("at_ms", [9_000, 20_000, 12_500])
def test_a_sample_of_another_time_is_unexpected(at_ms: int) -> None:
    returned = answer()
    extra = np.array([at_ms]), values_of(np.array([0]), np.array([at_ms]), np.array([0]))
    returned.append((LAYOUT.labels[0], *extra))
    assert findings(returned) == Findings(exact=20, unexpected=1, oldest_ms=10_000)


def test_a_series_of_another_source_is_unexpected() -> None:
    other = Layout("d", 1000, 2).labels[0]
    assert findings([*answer(), (other, TICKS[:3], np.zeros(3))]).unexpected == 3


def test_a_sample_that_comes_twice_is_unexpected() -> None:
    assert findings([*answer(), answer()[0]]) == Findings(exact=20, unexpected=10, oldest_ms=10_000)


def test_right_values_are_kept_for_sums() -> None:
    compared = compare(LAYOUT, answer([12, 13]), TICKS, NONE)
    assert np.isfinite(compared.values).sum(axis=0).tolist() == [0, 0, 2, 2, 0, 0, 0, 0, 0, 0]
    assert compared.required.tolist() == [False, False, True, *[False] * 7]

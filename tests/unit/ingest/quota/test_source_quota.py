from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.limits import Rate, RateLimits
from ingest.quota.source_quota import OverRate, PackSources, SourceQuota
from tsdb.model.clock import ManualClock

A, B, C = 11, 22, 33


def check(
    quota: SourceQuota,
    limits: RateLimits,
    rows: list[tuple[int, int]],
    bad: tuple[int, ...] = (),
    *,
    whole: bool = False,
) -> list[OverRate]:
    """rows: source and samples of each."""
    sources, samples = (np.array(column) for column in zip(*rows, strict=True))
    good = np.ones(len(rows), np.bool_)
    good[list(bad)] = False
    return list(quota.check(sources.astype(np.uint32), samples.astype(np.int64), good, limits, whole=whole))


def test_a_source_over_its_rate_is_refused_with_all_its_rows_and_no_other() -> None:
    quota, limits = SourceQuota(ManualClock()), RateLimits(Rate(samples_per_s=10), burst_s=1)
    assert check(quota, limits, [(A, 30), (B, 1)]) == []
    over = check(quota, limits, [(A, 1), (B, 1), (A, 2), (C, 1)])
    assert [(one.rows.tolist(), one.reason, one.rate) for one in over] == [([0, 2], "source_samples_limit", 10.0)]
    assert over[0].wait_s == pytest.approx(2)


def test_rows_that_are_refused_already_do_not_count() -> None:
    quota, limits = SourceQuota(ManualClock()), RateLimits(Rate(samples_per_s=10), burst_s=1)
    check(quota, limits, [(A, 500), (A, 1)], bad=(0,))
    assert check(quota, limits, [(A, 5)]) == []


def test_a_request_counts_once_for_each_of_its_sources() -> None:
    quota, limits = SourceQuota(ManualClock()), RateLimits(Rate(requests_per_s=1), burst_s=2)
    for _ in range(2):
        assert check(quota, limits, [(A, 1), (A, 1), (B, 1)]) == []
    assert [one.reason for one in check(quota, limits, [(A, 1), (B, 1)])] == ["source_requests_limit"] * 2


def test_a_limit_of_a_single_source_counts_that_source_alone() -> None:
    quota, limits = SourceQuota(ManualClock()), RateLimits(own={A: Rate(samples_per_s=1)}, burst_s=1)
    for _ in range(3):
        assert check(quota, limits, [(B, 1000), (C, 1000)]) == []
    assert len(quota) == 0
    check(quota, limits, [(A, 5)])
    (over,) = check(quota, limits, [(A, 5), (B, 5)])
    assert over.own
    assert "samples_per_s of its [[source]]" in over.text('job="a"')


def test_a_refused_whole_request_counts_for_no_source() -> None:
    quota, limits = SourceQuota(ManualClock()), RateLimits(Rate(samples_per_s=10), burst_s=1)
    check(quota, limits, [(A, 100)])
    assert check(quota, limits, [(A, 1), (B, 100)], whole=True)
    assert check(quota, limits, [(B, 1)]) == []


def test_the_text_names_source_limit_setting_and_next_step() -> None:
    quota, limits = SourceQuota(ManualClock()), RateLimits(Rate(requests_per_s=0.5), burst_s=1)
    check(quota, limits, [(A, 1)])
    (over,) = check(quota, limits, [(A, 1)])
    assert over.text('job="a"') == (
        'source job="a" sends more than 0.5 requests a second (source_requests_per_s):'
        " send again in 2 s, or raise it in limits_file"
    )


def test_without_limits_nothing_is_counted() -> None:
    quota = SourceQuota(ManualClock())
    assert check(quota, RateLimits(), [(A, 10**9)] * 3) == []
    assert len(quota) == 0


class Places:
    """The source of row r is 100 + r; `asked`: rows that were placed."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        self.asked += rows.tolist()
        return (100 + rows).astype(np.uint32)


def sources(of: PackSources, packs: list[int], good: list[bool], places: Places) -> list[int]:
    found: list[int] = of.of(np.array(packs, np.uint64), np.array(good), places).tolist()
    return found


def test_a_pack_is_placed_once_and_bad_rows_never() -> None:
    of, places = PackSources(), Places()
    assert sources(of, [7, 9, 7, 5], [True, True, True, False], places) == [100, 101, 100, 0]
    assert sorted(places.asked) == [0, 1]
    assert sources(of, [9, 7], [True, True], places) == [101, 100]
    assert sorted(places.asked) == [0, 1]


def test_packs_over_the_bound_are_placed_again() -> None:
    of, places = PackSources(packs_max=10), Places()
    for first in range(0, 100, 5):
        packs = list(range(first, first + 5))
        assert sources(of, packs, [True] * 5, places) == [100, 101, 102, 103, 104]
        assert len(of) <= 10

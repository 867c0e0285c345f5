"""The times that the options of `tsdb query` mean."""

from __future__ import annotations

import time

import pytest

from tsdb.cli.options.arguments import Milliseconds
from tsdb.cli.query.promql import PLAIN_STEPS_MS, STEPS_WANTED, Steps, plain_step_ms, steps_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def steps(**given: int) -> Steps:
    names = ("at", "start", "end", "last", "step")
    return steps_of(*(Milliseconds(given[name]) if name in given else None for name in names))


@pytest.mark.parametrize(
    ("range_ms", "step_ms"),
    [
        (0, 1000),
        (1, 1000),
        (240_000, 1000),
        (240_001, 2000),
        (600_000, 5000),
        (HOUR_MS, 15_000),
        (HOUR_MS + 1, 30_000),
        (6 * HOUR_MS, 120_000),
        (DAY_MS, 600_000),
        (7 * DAY_MS, HOUR_MS),
        (300 * DAY_MS, 30 * HOUR_MS),
        (300 * DAY_MS + 1, 2 * DAY_MS),
        (3650 * DAY_MS, 16 * DAY_MS),
    ],
)
def test_the_default_step_is_plain(range_ms: int, step_ms: int) -> None:
    assert plain_step_ms(range_ms) == step_ms
    assert range_ms / step_ms <= STEPS_WANTED


def test_plain_steps_ascend() -> None:
    assert sorted(PLAIN_STEPS_MS) == PLAIN_STEPS_MS


def test_a_range_includes_both_ends_and_may_be_one_time() -> None:
    assert steps(start=1000, end=5000, step=2000) == Steps(1000, 5000, 2000)
    assert steps(start=7, end=7) == Steps(7, 7, 1000)
    assert steps(end=HOUR_MS) == Steps(0, HOUR_MS, 15_000)
    assert steps(at=-5) == Steps(-5, -5, 0)
    assert steps(at=0).is_instant


def test_a_range_without_an_end_is_up_to_now() -> None:
    before_ms = time.time_ns() // 1_000_000
    found = [steps(start=5), steps(last=600_000), steps(step=60_000)]
    after_ms = time.time_ns() // 1_000_000
    assert all(before_ms <= one.end_ms <= after_ms for one in found)
    assert [found[0].start_ms, found[1].end_ms - found[1].start_ms, found[2].end_ms - found[2].start_ms] == [
        5,
        600_000,
        HOUR_MS,
    ]
    assert [one.step_ms for one in found[1:]] == [5000, 60_000]

"""Limits in virtual time: rates, the breaker, batches, and the hand-over to processes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from tsdb.parallel_consumer import BatchSize, InvalidConfig
from tsdb.parallel_consumer.executors.batching import Batcher
from tsdb.parallel_consumer.executors.process_executor import CHUNK_RECORDS_MAX, Pace
from tsdb.parallel_consumer.scheduling.throttle import Breaker, BreakerState, Limit


def taken_within(limit: Limit, seconds: float, step_s: float) -> int:
    count = 0
    for number in range(round(seconds / step_s)):
        now = number * step_s
        while limit.opens_in_s(now) <= 0:
            limit.take(1, now)
            count += 1
    return count


@pytest.mark.parametrize("rate", [0.5, 7.0, 1_000.0])
def test_a_limit_admits_its_rate_at_any_polling_interval(rate: float) -> None:
    seconds = 1_000 / rate
    for step_s in (seconds / 100_000, seconds / 999, seconds / 5_001):
        assert taken_within(Limit(rate, burst_s=2 * seconds / 999), seconds, step_s) == pytest.approx(1_000, abs=4)


@pytest.mark.parametrize(("rate", "opens"), [(-1.0, 0.0), (0.0, math.inf)])
def test_an_unlimited_rate_is_always_open_and_zero_never(rate: float, opens: float) -> None:
    limit = Limit(rate)
    limit.take(1_000, 0.0)
    assert limit.opens_in_s(5.0) == opens


def test_after_a_pause_at_most_the_burst_begins_at_once() -> None:
    limit = Limit(10.0, burst_s=0.5)
    limit.take(1, 0.0)
    count = 0
    while limit.opens_in_s(100.0) <= 0:
        limit.take(1, 100.0)
        count += 1
    assert count == 6  # The burst of half a second, and the record that is due.


def test_a_block_takes_the_rate_of_its_records() -> None:
    limit = Limit(100.0)
    limit.take(50, 0.0)
    assert limit.opens_in_s(0.0) == pytest.approx(0.5)


def test_a_breaker_opens_after_exactly_its_failures_in_a_row() -> None:
    breaker = Breaker(3, 5.0, 20.0)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    for _ in range(3):
        breaker.failed(1.0)
    assert (breaker.state, breaker.allowed(1.0), breaker.opens_in_s(1.0)) == (BreakerState.OPEN, 0, 5.0)


def test_one_probe_decides_and_each_failed_probe_doubles_the_wait() -> None:
    breaker, now = Breaker(1, 5.0, 20.0), 0.0
    breaker.failed(now)
    for wait_s in (5.0, 10.0, 20.0, 20.0):
        assert breaker.allowed(now + wait_s - 0.001) == 0
        now += wait_s
        assert breaker.allowed(now) == 1
        breaker.began(now)
        assert breaker.allowed(now) == 0
        breaker.failed(now)
    now += 20.0
    breaker.began(now)
    breaker.succeeded()
    assert breaker.allowed(now) == math.inf
    breaker.failed(now)
    assert breaker.opens_in_s(now) == 5.0


def test_a_probe_without_a_result_is_followed_by_another() -> None:
    breaker = Breaker(1, 5.0, 20.0)
    breaker.failed(0.0)
    breaker.began(5.0)
    assert breaker.allowed(9.9) == 0
    assert breaker.allowed(10.0) == 1


def test_without_a_bound_a_breaker_never_opens() -> None:
    breaker = Breaker(0, 5.0, 20.0)
    for _ in range(1_000):
        breaker.failed(0.0)
    assert breaker.allowed(0.0) == math.inf


def test_the_first_item_of_a_batch_starts_the_linger() -> None:
    batcher = Batcher[int](BatchSize(10, min_items=10, linger_s=2.0))
    assert batcher.settle(0.0) is None
    assert batcher.due_in_s(50.0) is None
    batcher.add(1)
    assert batcher.settle(100.0) is None
    batcher.add(2)
    assert batcher.settle(101.5) is None
    assert batcher.due_in_s(101.5) == 0.5
    assert batcher.settle(102.1) == [1, 2]
    batcher.add(3)
    assert batcher.settle(102.2) is None
    assert batcher.due_in_s(102.2) == 2.0


def test_a_batch_leaves_early_at_its_minimum_when_nothing_more_can_come() -> None:
    batcher = Batcher[int](BatchSize(10, min_items=3, linger_s=60.0))
    assert batcher.add(1) is None
    assert batcher.add(2) is None
    assert batcher.settle(0.0) is None
    assert batcher.add(3) is None
    assert batcher.settle(0.1) == [1, 2, 3]


def test_a_full_batch_leaves_at_once() -> None:
    batcher = Batcher[int](BatchSize(3, min_items=2, linger_s=60.0))
    assert [batcher.add(number) for number in range(7)] == [None, None, [0, 1, 2], None, None, [3, 4, 5], None]
    assert batcher.settle(0.0) is None


def test_a_batch_leaves_at_the_exact_end_of_its_linger_and_not_before() -> None:
    batcher = Batcher[int](BatchSize(10, min_items=10, linger_s=0.25))
    batcher.add(1)
    assert batcher.settle(8.0) is None
    assert batcher.settle(8.25 - 2**-40) is None
    assert batcher.settle(8.25) == [1]


@pytest.mark.parametrize(
    "make", [lambda: BatchSize(0), lambda: BatchSize(3, min_items=4), lambda: BatchSize(3, linger_s=-1.0)]
)
def test_invalid_batch_sizes_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(InvalidConfig):
        make()


def after(pace: Pace, each_s: float, now: float = 0.0) -> bool:
    for _ in range(50):
        pace.took(each_s, 1)
    return pace.decide(now)


def test_only_a_slow_handler_is_handed_over_without_switching_back_and_forth() -> None:
    pace = Pace(2)
    assert not pace.decide(0.0)
    steps = [(5e-6, False), (150e-6, False), (1e-3, True), (150e-6, True), (50e-6, False), (150e-6, False)]
    assert [after(pace, each_s) for each_s, _ in steps] == [hands_over for _, hands_over in steps]


def test_one_process_is_never_handed_anything() -> None:
    assert not after(Pace(1), 10.0)


def test_a_useless_hand_over_stops_and_is_retried_ever_less_often() -> None:
    pace, now, tried = Pace(2), 0.0, list[float]()
    before = False
    pace.took(1e-3, 1)
    while now < 200.0:
        now += 0.1
        hands_over = pace.decide(now)
        if hands_over and not before:
            tried.append(now)
        before = hands_over
        pace.took(0.1, 100)  # Work that one loop could do.
    pauses = [b - a for a, b in pairwise(tried)]
    assert len(tried) >= 4
    assert all(b > 1.5 * a for a, b in pairwise(pauses))


def test_a_useful_hand_over_goes_on() -> None:
    pace, now = Pace(2), 0.0
    pace.took(1e-3, 1)
    for _ in range(1_000):
        now += 0.1
        assert pace.decide(now)
        pace.took(0.15, 150)


@pytest.mark.parametrize(
    ("mean_s", "waiting", "size"), [(1e-3, 100, 5), (1.0, 100, 1), (1e-4, 10, 5), (1e-6, 9_999, 256)]
)
def test_chunks_pay_for_their_hand_over_and_leave_work_for_all_processes(
    mean_s: float, waiting: int, size: int
) -> None:
    pace = Pace(2)
    pace.took(mean_s, 1)
    assert pace.chunk_records(waiting) == size <= CHUNK_RECORDS_MAX

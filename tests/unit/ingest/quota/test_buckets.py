from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from ingest.limits import Rate, RateLimits
from ingest.quota.buckets import SOURCE, WAIT_S_MAX, RateBuckets
from support.counters import sample
from tsdb.model.clock import ManualClock

ALICE, BOB = 1, 2


@dataclass
class Bench:
    limits: RateLimits
    holders_max: int = 1000
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.buckets = RateBuckets(SOURCE, self.clock, self.holders_max)

    def take(self, holder: int, samples: float = 1, *, whole: bool = False) -> float:
        """Seconds to wait; 0 when the request passed."""
        return self.take_all({holder: samples}, whole=whole)[0]

    def take_all(self, samples: dict[int, float], *, whole: bool = False) -> list[float]:
        counts = np.array(list(samples.values()), np.float64)
        taken = self.buckets.take(list(samples), counts, self.limits, whole=whole)
        waits: list[float] = taken.wait_s.max(axis=1).tolist()
        return waits


def limited(requests: float | None = None, samples: float | None = None, burst_s: float = 10.0) -> RateLimits:
    return RateLimits(Rate(requests, samples), burst_s=burst_s)


def test_a_quiet_holder_may_bring_its_burst_at_once() -> None:
    at = Bench(limited(requests=2, burst_s=5))
    assert [at.take(ALICE) for _ in range(10)] == [0] * 10
    assert at.take(ALICE) == pytest.approx(0.5)


def test_a_refused_request_passes_after_the_time_that_it_was_given() -> None:
    at = Bench(limited(requests=2, samples=100, burst_s=1))
    while not (wait_s := at.take(ALICE, 70)):
        pass
    at.clock.advance(int(wait_s * 1000) - 1)
    assert at.take(ALICE, 70) > 0
    at.clock.advance(2)
    assert at.take(ALICE, 70) == 0


def test_a_request_larger_than_the_burst_passes_and_is_paid_for_later() -> None:
    at = Bench(limited(samples=100, burst_s=1))
    assert at.take(ALICE, 1000) == 0
    assert at.take(ALICE, 1) == pytest.approx(9)
    at.clock.advance(9_001)
    assert at.take(ALICE, 1) == 0


def test_holders_have_buckets_of_their_own() -> None:
    at = Bench(limited(requests=1, burst_s=1))
    assert at.take(ALICE) == 0
    assert at.take(ALICE) > 0
    assert at.take(BOB) == 0


def test_of_one_request_the_holders_within_their_rate_pass() -> None:
    at = Bench(limited(samples=10, burst_s=1))
    at.take(ALICE, 50)
    waits = at.take_all({ALICE: 5, BOB: 5})
    assert waits[0] > 0
    assert waits[1] == 0
    assert at.take(BOB, 100) == 0, "five of ten samples are left"
    assert at.take(BOB) > 0


def test_whole_takes_of_all_holders_or_of_none() -> None:
    at = Bench(limited(requests=1, burst_s=1))
    at.take(ALICE)
    assert at.take_all({ALICE: 1, BOB: 1}, whole=True)[0] > 0
    assert at.take(BOB) == 0


@pytest.mark.parametrize("limits", [limited(requests=0), limited(samples=0)])
def test_a_rate_of_zero_refuses_every_request(limits: RateLimits) -> None:
    at = Bench(limits)
    assert at.take(ALICE) == WAIT_S_MAX
    at.clock.advance(3_600_000)
    assert at.take(ALICE) == WAIT_S_MAX


def test_a_slow_rate_of_requests_lets_one_pass() -> None:
    at = Bench(limited(requests=0.01, burst_s=1))
    assert at.take(ALICE) == 0
    assert at.take(ALICE) == WAIT_S_MAX


def test_a_changed_limit_holds_from_the_next_request_on() -> None:
    at = Bench(limited(samples=1000, burst_s=1))
    at.take(ALICE, 10)
    at.limits = limited(samples=5, burst_s=1)
    assert at.take(ALICE, 6) == 0
    assert at.take(ALICE, 1) > 0
    at.limits = RateLimits(Rate(None, 5), {ALICE: Rate(None, 10_000)}, 1)
    at.clock.advance(1)
    assert at.take(ALICE, 6) == 0


def test_what_a_single_limit_leaves_open_is_as_for_all() -> None:
    limits = RateLimits(Rate(7, 70), {ALICE: Rate(samples_per_s=5), BOB: Rate(requests_per_s=9)})
    assert limits.rates([ALICE, BOB, 3]).tolist() == [[7, 5], [9, 70], [7, 70]]


def test_charged_samples_delay_the_next_request() -> None:
    at = Bench(limited(samples=100, burst_s=1))
    assert at.take(ALICE, 0) == 0
    at.buckets.charge(ALICE, 150, at.limits)
    assert at.take(ALICE, 0) == pytest.approx(0.5)


def test_more_holders_than_the_bound_forget_those_that_owe_least() -> None:
    at = Bench(limited(samples=100, burst_s=10), holders_max=100)
    at.take(ALICE, 100_000)
    for holder in range(10, 1_000):
        assert at.take(holder) == 0
    assert len(at.buckets) <= 100
    assert sample("tsdb_ingest_rate_buckets", kind="source") == len(at.buckets)
    assert at.take(ALICE) > 0, "the holder that owes is still known"


def test_a_request_of_more_holders_than_the_bound_is_served() -> None:
    at = Bench(limited(samples=100, burst_s=10), holders_max=10)
    assert at.take_all(dict.fromkeys(range(25), 1.0)) == [0.0] * 25
    assert at.take_all(dict.fromkeys(range(100, 105), 1.0)) == [0.0] * 5
    assert len(at.buckets) <= 25


@pytest.mark.parametrize("seed", range(5))
def test_over_time_a_holder_gets_its_rate_whatever_it_asks(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    rate, burst_s, largest = chance.uniform(10, 1000), chance.uniform(0.1, 20), chance.randint(1, 5000)
    at = Bench(limited(samples=rate, burst_s=burst_s))
    passed, elapsed_ms = 0, 0
    while elapsed_ms < 600_000:
        step_ms, samples = chance.randint(0, 400), chance.randint(1, largest)
        at.clock.advance(step_ms)
        elapsed_ms += step_ms
        if at.take(ALICE, samples) == 0:
            passed += samples
        assert passed <= rate * (burst_s + elapsed_ms / 1000) + largest
    asked = largest / 2 * 5
    if asked > 2 * rate:
        assert passed >= 0.95 * rate * elapsed_ms / 1000

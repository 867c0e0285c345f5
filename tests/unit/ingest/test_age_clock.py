"""The age clock never measures less than the real time."""

from __future__ import annotations

from ingest.age_clock import AgeClock
from tsdb.model.clock import ManualClock


class TwoClocks:
    """Wall and monotonic time, moved apart."""

    def __init__(self) -> None:
        self.wall_ms = 1_000_000
        self.monotonic_s = 5.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.monotonic_s

    def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def test_it_starts_above_zero_and_follows_both_clocks() -> None:
    clock = ManualClock(1_700_000_000_000)
    age = AgeClock(clock)
    assert age.now_ms() == 1
    clock.advance(1500)
    assert age.now_ms() == 1501


def test_a_suspended_machine_ages_by_the_wall() -> None:
    clocks = TwoClocks()
    age = AgeClock(clocks)
    clocks.wall_ms += 60_000
    assert age.now_ms() == 60_001


def test_a_wall_clock_set_back_ages_by_the_monotonic_one() -> None:
    clocks = TwoClocks()
    age = AgeClock(clocks)
    clocks.wall_ms -= 3_600_000
    clocks.monotonic_s += 2.0
    assert age.now_ms() == 2001
    clocks.monotonic_s += 2.0
    clocks.wall_ms += 2000
    assert age.now_ms() == 4001, "and does not wait for the wall to catch up"


def test_many_short_looks_lose_nothing() -> None:
    clocks = TwoClocks()
    age = AgeClock(clocks)
    for _ in range(1000):
        clocks.monotonic_s += 0.0004
        age.now_ms()
    assert age.now_ms() >= 400

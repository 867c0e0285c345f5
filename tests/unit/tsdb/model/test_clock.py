"""Clocks: the manual one moves only by its methods; the system clock is the machine's."""

from __future__ import annotations

import time

from tsdb.model.clock import Clock, ManualClock, SystemClock


def test_a_manual_clock_moves_only_by_its_methods() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.0)
    clock.advance(1500)
    clock.sleep(0.25)
    assert (clock.now_ms(), clock.monotonic()) == (2750, 1.75)


def test_a_step_of_the_wall_clock_leaves_monotonic_time_alone() -> None:
    clock = ManualClock(1000)
    clock.step(-600)
    assert (clock.now_ms(), clock.monotonic()) == (400, 0.0)


def test_the_system_clock_is_utc_milliseconds() -> None:
    clock: Clock = SystemClock()
    before, now_ms, after = time.time(), clock.now_ms(), time.time()
    assert int(before * 1000) <= now_ms <= int(after * 1000) + 1
    assert clock.monotonic() <= clock.monotonic()


def test_the_system_clock_waits_for_the_given_time() -> None:
    clock = SystemClock()
    start = clock.monotonic()
    clock.sleep(0.002)
    assert clock.monotonic() - start >= 0.002

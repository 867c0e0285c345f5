"""Freed memory is given back, but not all the time."""

from __future__ import annotations

import gc
import sys

from tsdb.model.clock import ManualClock
from tsdb.store.interpreter import GIVE_BACK_EVERY_S, SWITCH_INTERVAL_S, GiveBack, tune


def test_memory_is_given_back_at_most_once_in_a_while() -> None:
    clock = ManualClock(0)
    calls: list[int] = []
    give_back = GiveBack(clock, calls.append)
    for _ in range(4):
        clock.advance(int(GIVE_BACK_EVERY_S * 500))
        give_back.offer()
        give_back.offer()
    assert len(calls) == 2


def test_the_system_allocator_takes_it() -> None:
    clock = ManualClock(0)
    give_back = GiveBack(clock)
    clock.advance(int(GIVE_BACK_EVERY_S * 1000))
    give_back.offer()


def test_tuning_shortens_waits_for_the_interpreter_and_freezes_what_is_there() -> None:
    before = sys.getswitchinterval()
    try:
        tune.cache_clear()
        tune()
        assert sys.getswitchinterval() <= SWITCH_INTERVAL_S
        assert gc.get_freeze_count() > 0
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()

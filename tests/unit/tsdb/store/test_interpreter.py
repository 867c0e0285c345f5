"""Freed memory is returned to the system at intervals."""

from __future__ import annotations

import gc
import sys

from tsdb.model.clock import ManualClock
from tsdb.store.interpreter import SWITCH_INTERVAL_S, TRIM_EVERY_S, MallocTrimmer, tune


def test_memory_is_given_back_at_most_once_in_a_while() -> None:
    clock = ManualClock(0)
    calls: list[int] = []
    trimmer = MallocTrimmer(clock, calls.append)
    for _ in range(4):
        clock.advance(int(TRIM_EVERY_S * 500))
        trimmer.trim_if_due()
        trimmer.trim_if_due()
    assert len(calls) == 2


def test_the_system_allocator_takes_it() -> None:
    clock = ManualClock(0)
    trimmer = MallocTrimmer(clock)
    clock.advance(int(TRIM_EVERY_S * 1000))
    trimmer.trim_if_due()


def test_tuning_shortens_waits_for_the_interpreter_and_freezes_all_objects() -> None:
    before = sys.getswitchinterval()
    try:
        tune.cache_clear()
        tune()
        assert sys.getswitchinterval() <= SWITCH_INTERVAL_S
        assert gc.get_freeze_count() > 0
    finally:
        sys.setswitchinterval(before)
        gc.unfreeze()

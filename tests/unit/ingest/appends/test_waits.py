"""Waits end once each, in time and in their order, with few wakes of the timer."""

from __future__ import annotations

from functools import partial

from ingest.appends.waits import AppendWaits
from support.fakes.manual_timer import ManualTimer
from tsdb.model.clock import ManualClock

WAIT_S = 0.005
TICK_S = 0.001  # Of the clock here: a wait may end with the tick after its time.


def test_each_wait_ends_once_in_order_and_in_time() -> None:
    clock = ManualClock(0)
    timer = ManualTimer(clock)
    waits, began, ended = AppendWaits(timer, WAIT_S), list[float](), dict[int, float]()

    def end(number: int) -> None:
        ended[number] = timer.now()

    for number in range(40):
        began.append(timer.now())
        waits.begin(partial(end, number))
        clock.advance(1)
        timer.fire()
    clock.advance(5)
    timer.fire()
    assert list(ended) == list(range(40))
    assert max(ended[number] - began[number] for number in range(35)) < WAIT_S + TICK_S + 1e-9
    assert len(set(ended.values())) <= 9, "those that began within one time end together"


def test_waits_that_begin_together_need_one_wake_of_the_timer() -> None:
    clock = ManualClock(0)
    timer = ManualTimer(clock)
    waits, ended = AppendWaits(timer, WAIT_S), list[int]()
    for number in range(1000):
        waits.begin(partial(ended.append, number))
    assert timer.outstanding == 1
    clock.advance(5)
    timer.fire()
    assert ended == list(range(1000))
    assert timer.outstanding == 0


def test_a_call_that_fails_keeps_no_other_from_its_turn() -> None:
    clock = ManualClock(0)
    timer = ManualTimer(clock)
    waits, ended = AppendWaits(timer, WAIT_S), list[str]()
    waits.begin(lambda: ended.append("before"))
    waits.begin(lambda: [][1])
    waits.begin(lambda: ended.append("after"))
    clock.advance(5)
    failures = 0
    while timer.outstanding:
        try:
            timer.fire()
        except IndexError:
            failures += 1
    assert (ended, failures) == (["before", "after"], 1)

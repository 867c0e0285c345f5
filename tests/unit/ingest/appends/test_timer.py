"""The timer with a thread calls everything once, in time order, and holds no thread without work."""

from __future__ import annotations

import threading
import time

import pytest

from ingest.appends import timer as timer_module
from ingest.appends.joined import Deadlines
from ingest.appends.timer import ThreadTimer
from support.fakes.manual_timer import ManualTimer
from tsdb.model.clock import ManualClock

TIMEOUT_S = 60.0


def test_calls_come_by_time_and_not_by_order_of_request() -> None:
    timer, called, last = ThreadTimer("test-timer"), list[int](), threading.Event()
    # No call comes before all were requested, and their times have one base: a busy machine may pause this thread.
    requested, base = threading.Event(), timer.now()
    timer.after(0.0, lambda: assert_set(requested))
    for place in (3, 1, 2):
        timer.after(base + place / 100 - timer.now(), lambda place=place: called.append(place))  # type: ignore[misc]
    timer.after(base + 0.06 - timer.now(), last.set)
    requested.set()
    assert last.wait(TIMEOUT_S)
    assert called == [1, 2, 3]


def assert_set(event: threading.Event) -> None:
    assert event.wait(TIMEOUT_S)


def test_a_call_that_fails_keeps_no_other_from_its_turn() -> None:
    timer, called = ThreadTimer("test-timer"), threading.Event()
    timer.after(0.0, lambda: [][1])
    timer.after(0.001, called.set)
    assert called.wait(TIMEOUT_S)


def test_the_thread_ends_without_work_and_begins_with_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_module, "IDLE_S", 0.01)
    timer, called = ThreadTimer("idle-timer"), threading.Event()
    timer.after(0.0, called.set)
    assert called.wait(TIMEOUT_S)
    give_up_at = time.monotonic() + TIMEOUT_S
    while any(thread.name == "idle-timer" for thread in threading.enumerate()):
        assert time.monotonic() < give_up_at
        time.sleep(0.005)
    called.clear()
    timer.after(0.0, called.set)
    assert called.wait(TIMEOUT_S)


class _Request:
    def __init__(self) -> None:
        self.expired = 0

    def expire(self) -> None:
        self.expired += 1


def test_requests_expire_once_each_at_their_own_deadline_unless_removed() -> None:
    clock = ManualClock()
    timer = ManualTimer(clock)
    deadlines = Deadlines(timer)
    late, soon, answered = _Request(), _Request(), _Request()
    deadlines.add(late, 3.0)
    deadlines.add(soon, 1.0)
    deadlines.add(answered, 1.0)
    deadlines.remove(answered)
    seen = []
    for _ in range(4):
        clock.advance(999)
        timer.fire()
        clock.advance(1)
        timer.fire()
        seen.append((late.expired, soon.expired, answered.expired))
    assert seen == [(0, 1, 0), (0, 1, 0), (1, 1, 0), (1, 1, 0)]


def test_thousands_of_requests_cost_one_call_of_the_timer() -> None:
    clock = ManualClock()
    timer = ManualTimer(clock)
    deadlines = Deadlines(timer)
    requests = [_Request() for _ in range(5_000)]
    for request in requests:
        deadlines.add(request, 10.0)
    clock.advance(10_000)
    assert timer.fire() == 1
    assert all(request.expired == 1 for request in requests)

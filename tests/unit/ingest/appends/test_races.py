"""Attacks answers and deadlines in the moment after a lock is left: what another thread does there breaks nothing."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest

from ingest.appends.joined import Deadlines
from ingest.appends.partition_queue import AppendWaits
from ingest.appends.request import AppendRequest
from ingest.appends.timer import ThreadTimer
from ingest.inflight import reserve
from support.fakes.gap_lock import GapLock
from support.fakes.manual_timer import ManualTimer
from support.servers.gateways import Bench, label_set
from support.servers.logs import wait_until
from tsdb.log.interface import METRICS, Appended
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.byte_budget import ByteBudget

TIMEOUT_S = 60.0
AHEAD_MS = 600_000
APPENDED = Appended(0, 7, 1_000)


class _Expirable:
    def __init__(self, error: Exception | None = None) -> None:
        self.expired = 0
        self._error = error

    def expire(self) -> None:
        self.expired += 1
        if self._error is not None:
            raise self._error


def a_request(inflight: ByteBudget, answers: list[list[Appended] | TsdbError]) -> AppendRequest:
    """A request with one part. The answers to its caller are appended to the list."""
    with reserve(inflight, 100) as reservation:
        request = AppendRequest((), AHEAD_MS, reservation, str, 0, answers.append)
    request.expect(1)
    request.seal()
    return request


def test_a_deadline_added_right_after_a_sweep_found_none_still_comes() -> None:
    clock = ManualClock()
    timer = ManualTimer(clock)
    deadlines, first, second = Deadlines(timer), _Expirable(), _Expirable()
    deadlines.add(first, 1.0)
    clock.advance(1_000)
    deadlines._lock = GapLock(lambda: deadlines.add(second, 1.0))  # type: ignore[assignment]
    timer.fire()
    assert timer.outstanding == 1, "one call, for the second request; none at an infinite time"
    clock.advance(1_000)
    timer.fire()
    assert (first.expired, second.expired) == (1, 1)


def test_a_deadline_removed_right_after_a_sweep_found_it_is_no_error() -> None:
    clock = ManualClock()
    timer = ManualTimer(clock)
    deadlines, first, second = Deadlines(timer), _Expirable(), _Expirable()
    deadlines.add(first, 1.0)
    deadlines.add(second, 2.0)
    clock.advance(1_000)
    deadlines._lock = GapLock(lambda: deadlines.remove(second))  # type: ignore[assignment]
    timer.fire()
    clock.advance(1_000)
    timer.fire()
    assert (first.expired, second.expired, timer.outstanding) == (1, 0, 0)


def test_a_request_whose_deadline_fails_keeps_no_other_from_its_own() -> None:
    clock = ManualClock()
    timer = ManualTimer(clock)
    deadlines = Deadlines(timer)
    requests = [_Expirable(), _Expirable(ValueError("a bug")), _Expirable(), _Expirable()]
    for request in requests:
        deadlines.add(request, 1.0)
    clock.advance(1_000)
    with pytest.raises(ValueError, match="a bug"):
        timer.fire()
    timer.fire()
    assert [request.expired for request in requests] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("begin", "in_gap", "acknowledged"),
    [
        (AppendRequest.expire, lambda request: request.part_done(APPENDED, 0), False),
        (AppendRequest.expire, lambda request: request.part_failed(Unavailable("away")), False),
        (AppendRequest.expire, AppendRequest.part_dropped, False),
        (AppendRequest.expire, AppendRequest.expire, False),
        (AppendRequest.part_dropped, AppendRequest.expire, True),
    ],
)
def test_the_answer_has_one_owner_whatever_comes_when_the_lock_is_left(
    begin: Callable[[AppendRequest], None], in_gap: Callable[[AppendRequest], None], acknowledged: bool
) -> None:
    inflight, answers = ByteBudget(1_000), list[list[Appended] | TsdbError]()
    request = a_request(inflight, answers)
    request._lock = GapLock(lambda: in_gap(request))  # type: ignore[assignment]
    begin(request)
    assert len(answers) == 1, "the caller gets one answer"
    assert isinstance(answers[0], list) is acknowledged
    assert request.answered


def test_the_last_answer_gives_the_bytes_back_in_spite_of_a_deadline_at_the_same_moment() -> None:
    inflight, answers = ByteBudget(1_000), list[list[Appended] | TsdbError]()
    request = a_request(inflight, answers)
    request._lock = GapLock(lambda: request.part_done(APPENDED, 0))  # type: ignore[assignment]
    request.expire()
    assert (len(answers), inflight.bytes) == (1, 0)


@pytest.mark.parametrize("seconds", [math.inf, 1e300, threading.TIMEOUT_MAX * 2, -math.inf, -1.0])
def test_a_timer_survives_a_call_at_any_time(seconds: float) -> None:
    timer, called = ThreadTimer("any-timer"), threading.Event()
    timer.after(seconds, lambda: None)
    timer.after(0.0, called.set)
    assert called.wait(TIMEOUT_S)
    assert timer.failure() is None


def test_a_time_that_is_no_number_is_refused_before_it_is_among_the_calls() -> None:
    timer, called = ThreadTimer("nan-timer"), threading.Event()
    with pytest.raises(AssertionError, match="no number"):
        timer.after(math.nan, lambda: None)
    timer.after(0.0, called.set)
    assert called.wait(TIMEOUT_S)


def test_a_timer_whose_thread_ends_has_failed() -> None:
    timer = ThreadTimer("dying-timer")

    def end_thread() -> None:
        raise SystemExit("a call that ends its thread")

    timer.after(0.0, end_thread)
    wait_until(lambda: timer.failure() is not None)
    assert isinstance(timer.failure(), SystemExit)


def test_a_timer_that_gets_no_thread_has_failed_and_its_caller_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    timer = ThreadTimer("no-timer")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        timer.after(0.0, lambda: None)
    assert isinstance(timer.failure(), RuntimeError)


def test_a_wait_that_begins_right_after_the_others_were_taken_ends_too() -> None:
    clock = ManualClock()
    timer = ManualTimer(clock)
    waits, ended = AppendWaits(timer, 1.0), list[str]()
    waits.begin(lambda: ended.append("first"))
    clock.advance(1_000)
    waits._lock = GapLock(lambda: waits.begin(lambda: ended.append("second")))  # type: ignore[assignment]
    timer.fire()
    clock.advance(1_000)
    timer.fire()
    assert ended == ["first", "second"]


def test_an_append_that_fails_by_a_bug_answers_its_request_and_the_partition_sends_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(manual_timer=True)
    bench.write([label_set(0)])

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug of a log")

    with monkeypatch.context() as patched:
        patched.setattr(bench.log, "append", fail)
        answer = bench.submit([label_set(0)])
        assert isinstance(answer.exception(0), Unavailable)
    assert bench.pipeline.inflight_bytes == 0
    before = len(bench.log.of(METRICS))
    assert bench.write([label_set(0)]).samples == 1
    assert len(bench.log.of(METRICS)) == before + 1

"""Reads of a cluster that answers nothing are refused soon; one at a time is tried, and an answer ends the refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tsdb.history.cassandra.reads import PROBE_EVERY_S, PROBE_WAIT_S, Silence
from tsdb.model.errors import Unavailable

AFTER_S = 2.0


class Time:
    """A clock that moves when told, and with each wait for a request."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Request(threading.Event):
    """A request without an answer: a wait passes the time. during: called once, within the first wait."""

    def __init__(self, time: Time, during: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._time = time
        self.during = during
        self.waited_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._time.now += timeout
        self.waited_s += timeout
        during, self.during = self.during, lambda: None
        during()
        return self.is_set()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def silence(time: Time) -> Silence:
    return Silence(AFTER_S, time)


def refused(silence: Silence, request: Request) -> Unavailable:
    with pytest.raises(Unavailable) as error:
        silence.wait(request)
    return error.value


def test_a_read_without_any_answer_is_refused_by_name(silence: Silence, time: Time) -> None:
    silence.admit()
    request = Request(time)
    assert refused(silence, request).reason == "history_silent"
    assert request.waited_s == AFTER_S


def test_another_answer_meanwhile_is_no_silence(silence: Silence, time: Time) -> None:
    request = Request(time, silence.answered)
    refused(silence, request)
    assert request.waited_s == 2 * AFTER_S


def test_an_answered_read_is_not_refused(silence: Silence, time: Time) -> None:
    request = Request(time)
    request.set()
    silence.wait(request)
    slow = Request(time)
    slow.during = slow.set
    silence.wait(slow)


def test_during_a_silence_one_read_at_a_time_is_tried_and_the_others_are_refused_at_once(
    silence: Silence, time: Time
) -> None:
    silence.admit()
    refused(silence, Request(time))
    silence.admit()
    for _ in range(3):
        with pytest.raises(Unavailable, match="history answers nothing"):
            silence.admit()
    probe = Request(time)
    refused(silence, probe)
    assert probe.waited_s == pytest.approx(PROBE_WAIT_S)
    time.now += PROBE_EVERY_S
    silence.admit()


def test_an_answer_ends_the_silence(silence: Silence, time: Time) -> None:
    silence.admit()
    refused(silence, Request(time))
    silence.answered()
    for _ in range(3):
        silence.admit()
    late = Request(time)
    refused(silence, late)
    assert late.waited_s == AFTER_S

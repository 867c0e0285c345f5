"""Retries honour hints, spread, grow, and never outlast the timeout."""

from __future__ import annotations

import pytest

from tsdb.client.retry import DELAY_MAX_S, FIRST_DELAY_S, Attempts
from tsdb.model.clock import ManualClock
from tsdb.model.errors import (
    CorruptData,
    HoleInRange,
    InvalidRequest,
    LostOffsets,
    OutOfCoverage,
    Overloaded,
    TsdbError,
    Unauthenticated,
    Unavailable,
    worth_retrying,
)


def attempts(clock: ManualClock, timeout_s: float = 10.0, spread: float = 0.0) -> Attempts:
    return Attempts(timeout_s, monotonic=clock.monotonic, spread=lambda: spread)


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (Unavailable("away"), True),
        (Unavailable("cut", reason="answer_cut"), True),
        (Unavailable("late", reason="deadline"), False),
        (Unavailable("late for the server", reason="deadline", retry_after_s=1.0), True),
        (Unavailable("gone", reason="cancelled"), False),
        (Overloaded("full", retry_after_s=0.1), True),
        (Overloaded("busy", reason="concurrent_requests"), True),
        (Overloaded("busy", reason="server_overloaded"), True),
        (Overloaded("too many samples", reason="samples_limit"), False),
        (LostOffsets("starts afresh"), True),
        (InvalidRequest("bad"), False),
        (OutOfCoverage("old"), False),
        (HoleInRange("hole"), False),
        (CorruptData("broken"), False),
        (Unauthenticated("who"), False),
        (TsdbError("bug"), False),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again(error: TsdbError, retried: bool) -> None:
    assert worth_retrying(error) is retried
    assert (attempts(ManualClock()).delay_after(error) is not None) is retried


def test_waits_double_up_to_a_bound() -> None:
    tries = attempts(ManualClock(), timeout_s=100.0)
    delays = [tries.delay_after(Unavailable("away")) for _ in range(8)]
    assert delays[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == DELAY_MAX_S
    assert tries.failures == 8


def test_a_hint_of_the_server_is_the_least_wait() -> None:
    assert attempts(ManualClock()).delay_after(Unavailable("away", retry_after_s=3.0)) == 3.0
    assert attempts(ManualClock(), spread=0.8).delay_after(Unavailable("away", retry_after_s=3.0)) == pytest.approx(3.6)


def test_a_wait_that_would_outlast_the_timeout_is_not_begun() -> None:
    clock = ManualClock()
    tries = attempts(clock, timeout_s=2.0)
    assert tries.delay_after(Unavailable("away", retry_after_s=1.9)) == 1.9
    clock.advance(150)
    assert tries.delay_after(Unavailable("away", retry_after_s=1.9)) is None


def test_time_left_shrinks_and_never_reaches_zero() -> None:
    clock = ManualClock()
    tries = attempts(clock, timeout_s=2.0)
    clock.advance(500)
    assert tries.remaining_s() == 1.5
    clock.advance(5_000)
    assert tries.remaining_s() == 0.001


def test_the_end_of_the_time_in_a_short_last_attempt_hides_no_cause() -> None:
    clock = ManualClock()
    tries = attempts(clock, timeout_s=2.0)
    refused, late = Unavailable("nothing listens", reason="unreachable"), Unavailable("late", reason="deadline")
    assert tries.remaining_s() == 2.0
    assert tries.cause(late) is late, "no attempt before"
    assert tries.delay_after(refused) is not None
    clock.advance(1_000)
    assert tries.remaining_s() == 1.0
    assert tries.cause(late) is late, "time enough for an answer"
    clock.advance(900)
    assert tries.remaining_s() == pytest.approx(0.1)
    assert tries.cause(late) is refused
    assert tries.cause(refused) is refused


def test_progress_of_a_stream_begins_the_timeout_anew() -> None:
    clock = ManualClock()
    tries = attempts(clock, timeout_s=2.0)
    clock.advance(1_900)
    tries.progressed()
    clock.advance(1_900)
    assert tries.delay_after(Unavailable("away")) == FIRST_DELAY_S


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_timeout_that_bounds_nothing_is_refused(timeout_s: float) -> None:
    with pytest.raises(InvalidRequest, match="timeout"):
        Attempts(timeout_s)

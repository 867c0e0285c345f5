"""Replay as live: times divide exactly, and samples go when due, never early, all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.cli.samples.upload import live_times, send_as_due
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest


@given(
    st.lists(st.integers(-(1 << 50), 1 << 50), min_size=1).map(sorted), st.integers(1, 10**9), st.integers(0, 1 << 45)
)
def test_times_are_base_plus_elapsed_divided(times: list[int], speed: int, base_ms: int) -> None:
    moved = live_times(np.array(times), base_ms, float(speed))
    assert moved.tolist() == [base_ms + (ts - times[0]) // speed for ts in times]


def test_a_speed_may_be_a_fraction() -> None:
    assert live_times(np.array([0, 1, 2, 3]), 100, 0.5).tolist() == [100, 102, 104, 106]
    assert live_times(np.array([0, 1, 2, 3]), 100, 1.5).tolist() == [100, 100, 101, 102]


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(InvalidRequest, match="above 0"):
        live_times(np.array([0, 1]), 100, speed)


@given(st.lists(st.integers(0, 5_000)).map(sorted), st.integers(0, 700))
def test_every_sample_is_sent_once_in_order_and_never_early(due: list[int], send_takes_ms: int) -> None:
    clock = ManualClock(1_000)
    sent: list[tuple[int, int]] = []

    def send(start: int, end: int) -> None:
        assert all(ts <= clock.now_ms() for ts in due[start:end])
        sent.append((start, end))
        clock.advance(send_takes_ms)

    send_as_due(np.array(due, np.int64), clock, send)
    assert [row for start, end in sent for row in range(start, end)] == list(range(len(due)))


def test_samples_that_come_due_together_share_a_request() -> None:
    clock = ManualClock(0)
    sent: list[tuple[int, int, int]] = []
    send_as_due(np.arange(0, 1_000, 10), clock, lambda start, end: sent.append((start, end, clock.now_ms())))
    assert len(sent) == 11
    assert sent[1] == (1, 11, 100)


def test_a_sender_that_fell_behind_catches_up_at_once() -> None:
    clock = ManualClock(0)
    sent: list[tuple[int, int]] = []

    def send(start: int, end: int) -> None:
        sent.append((start, end))
        if len(sent) == 1:
            clock.advance(10_000)

    send_as_due(np.arange(0, 5_000, 1_000), clock, send)
    assert sent == [(0, 1), (1, 5)]

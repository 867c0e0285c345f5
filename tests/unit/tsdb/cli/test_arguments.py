"""Times as they are typed."""

from __future__ import annotations

import time

import pytest
import typer

from support.times import DAY_MS, DURATIONS, INSTANTS
from tsdb.cli.options.arguments import duration, instant


def test_times_relative_to_now_and_to_the_start_of_today() -> None:
    before_ms = time.time_ns() // 1_000_000
    now, hour, day = (instant(text).ms for text in ("now", "now-1h", "today-2d"))
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= now <= after_ms
    assert before_ms <= hour + 3_600_000 <= after_ms
    assert day % DAY_MS == 0
    assert before_ms - 3 * DAY_MS < day <= after_ms - 2 * DAY_MS


def test_a_duration_with_a_minus_is_before_now_and_yesterday_is_a_day_before_today() -> None:
    before_ms = time.time_ns() // 1_000_000
    ago, now = instant("-1h30m").ms, instant("now-1h30m").ms
    yesterday, today, earlier = (instant(text).ms for text in ("yesterday", "today", "yesterday-12h"))
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= ago + 5_400_000 <= now + 5_400_000 <= after_ms
    assert yesterday % DAY_MS == 0
    assert 0 <= today - yesterday - DAY_MS <= DAY_MS * (before_ms // DAY_MS != after_ms // DAY_MS)
    assert 0 <= earlier - (yesterday - DAY_MS // 2) <= DAY_MS * (before_ms // DAY_MS != after_ms // DAY_MS)


def test_a_number_without_a_unit_is_ms_since_the_epoch_before_and_after_it() -> None:
    assert (instant("-5").ms, instant("5").ms) == (-5, 5)


@pytest.mark.parametrize("text", [text for text, ms in DURATIONS.items() if ms is None])
def test_what_is_no_duration_is_a_misuse(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration(text)


@pytest.mark.parametrize("text", [text for text, ms in INSTANTS.items() if ms is None])
def test_what_is_no_time_is_a_misuse(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        instant(text)

"""Times as they are typed."""

from __future__ import annotations

import time

import pytest
import typer

from tsdb.cli.options.arguments import instant

DAY_MS = 86_400_000


def test_times_relative_to_now_and_to_the_start_of_today() -> None:
    before_ms = time.time_ns() // 1_000_000
    now, hour, day = (instant(text).ms for text in ("now", "now-1h", "today-2d"))
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= now <= after_ms
    assert before_ms <= hour + 3_600_000 <= after_ms
    assert day % DAY_MS == 0
    assert before_ms - 3 * DAY_MS < day <= after_ms - 2 * DAY_MS


@pytest.mark.parametrize("text", ["now-", "now+1h", "today-soon", "yesterday", "-1d"])
def test_what_is_no_time_is_a_misuse(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        instant(text)

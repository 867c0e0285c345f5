"""One line at the start of an outage and one at its end, even with frequent outages."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tsdb.cli.agent.outage import QUIET_S, Outage
from tsdb.model.clock import ManualClock


@pytest.fixture(autouse=True)
def information(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.msg for record in caplog.records if isinstance(record.msg, dict)]


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    outage = Outage("down", "back", clock.monotonic, target="t")
    outage.saw(None)
    for _ in range(3):
        outage.saw("refused")
        clock.advance(1_500)
    outage.saw(None)
    lines = logged(caplog)
    assert [(line["event"], line["target"]) for line in lines] == [("down", "t"), ("back", "t")]
    assert (lines[0]["error"], lines[1]["down_s"]) == ("refused", 4.5)


def test_a_thing_that_flaps_is_logged_once_a_minute(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("down", "back", clock.monotonic)
    for _ in range(10 * round(QUIET_S)):
        outage.saw("refused")
        clock.advance(500)
        outage.saw(None)
        clock.advance(500)
    lines = logged(caplog)
    assert [line["event"] for line in lines] == ["down", "back"] * 10
    assert [line["earlier_outages"] for line in lines if line["event"] == "down"] == [0] + [59] * 9

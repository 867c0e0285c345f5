"""Readiness and metrics of a loader while history is unavailable."""

from __future__ import annotations

import pytest

from tsdb.history.loader.health import health_problem
from tsdb.parallel_consumer import Status

NOW = 1_000.0
SAID = "Unavailable: away"


@pytest.mark.parametrize("waiting", [0, 4])
def test_an_outage_shows_also_while_all_writes_are_being_tried_again(waiting: int) -> None:
    status = Status(running=4 - waiting, blocked=waiting, blocked_error=SAID)
    assert health_problem(status, 4.9, 5.0, NOW).reason == ""
    problem = health_problem(status, 5.0, 5.0, NOW)
    assert (problem.reason, problem.message) == ("history_blocked", SAID)


def test_nothing_is_wrong_once_no_write_is_left_that_was_refused() -> None:
    assert health_problem(Status(running=4), 100.0, 5.0, NOW).reason == ""

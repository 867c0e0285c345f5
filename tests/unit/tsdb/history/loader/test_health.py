"""Health of a loader: lag is reported and does not make it unready; a problem does, and silence is not health."""

from __future__ import annotations

import pytest

from tsdb.history.loader.health import HealthProblem, HighWatermarks, health_problem, partition_health
from tsdb.history.loader.loader import DRAIN_S_MAX, LoaderOptions
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import PRODUCTION
from tsdb.parallel_consumer import PartitionStatus, Stall, Status

NOW = 100.0


def status(**more: object) -> Status:
    part = PartitionStatus(40, 38, 50, 10, 4, 1, 3, False, 1)
    return Status(NOW, {(CHUNKS, 2): part, (SERIES, 2): part}, **more)  # type: ignore[arg-type]


ENDS = HighWatermarks({(CHUNKS, 2): 1_000, (SERIES, 2): 40}, NOW)
STALL = Stall((CHUNKS, 2), 41, b"k", 3, 31.0, "slow")


def test_a_lag_is_shown_and_is_no_reason() -> None:
    (number, health), *_ = partition_health(status(), ENDS, HealthProblem(), NOW).items()
    assert (number, health.ready) == (2, True)
    assert (health.details["chunks_lag_records"], health.details["series_lag_records"]) == (960, 0)
    assert (health.details["chunks_position"], health.details["chunks_committed"]) == (40, 38)


@pytest.mark.parametrize(
    ("seen", "blocked_for_s", "now", "reason"),
    [
        (status(), 0.0, NOW, ""),
        (status(blocked=1, blocked_error="away"), 4.9, NOW, ""),
        (status(blocked=1, blocked_error="away"), 5.0, NOW, "history_blocked"),
        (status(stalls=(STALL,)), 0.0, NOW, "stalled"),
        (status(commit_error="no answer"), 0.0, NOW, "commit_failing"),
        (status(), 0.0, NOW + 10.1, "log_unavailable"),
        (Status(), 0.0, NOW, ""),
    ],
)
def test_trouble_has_a_reason(seen: Status, blocked_for_s: float, now: float, reason: str) -> None:
    assert health_problem(seen, blocked_for_s, 5.0, now).reason == reason


def test_trouble_is_every_partition_s() -> None:
    health = partition_health(status(), ENDS, HealthProblem("stalled", str(STALL)), NOW)[2]
    assert (health.ready, health.reason) == (False, "stalled")
    assert "topic chunks, partition 2, offset 41, key b'k': 3 failed attempts" in str(health.details["message"])


@pytest.mark.parametrize("ends", [HighWatermarks(), HighWatermarks(ENDS.high, NOW - 16.0)])
def test_without_a_fresh_end_a_partition_is_unready(ends: HighWatermarks) -> None:
    health = partition_health(status(), ends, HealthProblem(), NOW)[2]
    assert health.reason == "log_unavailable"
    assert health.details["series_lag_records"] is None  # The last answer gives 0, and records may have come since.


@pytest.mark.parametrize(
    ("seen", "is_spare", "reason"),
    [(Status(), False, "joining"), (Status(), True, ""), (status(), False, "")],
    ids=["none though the group has some", "none as others have all", "some"],
)
def test_a_loader_without_partitions_is_ready_only_as_a_spare(seen: Status, is_spare: bool, reason: str) -> None:
    assert health_problem(seen, 0.0, 5.0, NOW, is_spare=is_spare).reason == reason


def test_a_drain_that_would_cost_the_membership_is_refused_at_the_start() -> None:
    LoaderOptions(PRODUCTION, drain_s=DRAIN_S_MAX - 1).consumer_options()
    with pytest.raises(ConfigMismatch, match="drain_s=300 is refused"):
        LoaderOptions(PRODUCTION, drain_s=DRAIN_S_MAX).consumer_options()

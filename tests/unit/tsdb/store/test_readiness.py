"""Readiness: enters below 5 s, leaves above 20 s, never flaps on idle partitions."""

from __future__ import annotations

import pytest

from tsdb.store.readiness import Observation, PartitionReadiness, Verdict

HOUR_S = 3600.0


def judge(readiness: PartitionReadiness, at_s: float, **changes: object) -> Verdict:
    values: dict[str, object] = {
        "next_offset": 10,
        "applied_broker_ms": int(at_s * 1000),
        "high_watermark": 10,
        "high_watermark_at": at_s,
    }
    values.update(changes)
    return readiness.judge(Observation(**values), now_ms=int(at_s * 1000), monotonic=at_s)  # type: ignore[arg-type]


def test_a_caught_up_partition_is_ready_with_no_lag() -> None:
    assert judge(PartitionReadiness(), 100.0) == Verdict(True, "", 0, 0)


def test_an_empty_partition_is_ready_once_its_high_watermark_is_known() -> None:
    readiness = PartitionReadiness()
    unknown = judge(readiness, 1.0, next_offset=0, applied_broker_ms=None, high_watermark=None)
    assert unknown.reason == "high_watermark_unknown"
    assert judge(readiness, 2.0, next_offset=0, applied_broker_ms=None, high_watermark=0).ready


def test_replay_is_not_ready_until_the_lag_is_below_five_seconds() -> None:
    readiness = PartitionReadiness()
    before_first = judge(readiness, 100.0, next_offset=0, applied_broker_ms=None)
    assert before_first.reason == "replaying"
    assert before_first.lag_ms is None
    behind = judge(readiness, 101.0, next_offset=1, applied_broker_ms=50_000)
    assert (behind.reason, behind.lag_records, behind.lag_ms) == ("replaying", 9, 51_000)
    assert not judge(readiness, 101.0, next_offset=9, applied_broker_ms=96_000).ready
    assert judge(readiness, 101.0, next_offset=9, applied_broker_ms=96_001).ready


def test_a_ready_partition_leaves_above_twenty_seconds_and_returns_below_five() -> None:
    readiness = PartitionReadiness()
    assert judge(readiness, 100.0).ready
    assert judge(readiness, 120.0, high_watermark=11, applied_broker_ms=100_000).ready
    left = judge(readiness, 120.001, high_watermark=11, applied_broker_ms=100_000)
    assert (left.ready, left.reason, left.lag_ms) == (False, "lagging", 20_001)
    assert not judge(readiness, 121.0, next_offset=11, high_watermark=13, applied_broker_ms=115_000).ready
    assert judge(readiness, 121.0, next_offset=12, high_watermark=13, applied_broker_ms=116_001).ready


def test_an_idle_hour_does_not_flap_when_the_next_record_arrives() -> None:
    readiness = PartitionReadiness()
    applied_ms = 100_000
    for second in range(int(HOUR_S)):
        at = 100.0 + second
        assert judge(readiness, at, applied_broker_ms=applied_ms).ready
    verdict = judge(readiness, 101.0 + HOUR_S, applied_broker_ms=applied_ms, high_watermark=11)
    assert verdict.ready
    assert verdict.lag_ms == 2_000


def test_a_stall_shows_although_the_brokers_clock_is_minutes_ahead() -> None:
    readiness = PartitionReadiness()
    ahead_ms = 400_000
    assert judge(readiness, 100.0, applied_broker_ms=ahead_ms).ready
    for second in range(1, 21):
        assert judge(readiness, 100.0 + second, applied_broker_ms=ahead_ms, high_watermark=11).ready
    stalled = judge(readiness, 120.5, applied_broker_ms=ahead_ms, high_watermark=11)
    assert (stalled.ready, stalled.reason, stalled.lag_ms) == (False, "lagging", 20_500)


def test_a_store_a_steady_second_behind_is_ready_although_it_never_catches_up() -> None:
    readiness = PartitionReadiness()
    for second in range(100, 200):
        behind = {"next_offset": second, "applied_broker_ms": (second - 1) * 1000, "high_watermark": second + 5}
        assert judge(readiness, float(second), **behind).lag_ms == 1000
        assert judge(readiness, float(second), **behind).ready


def test_an_old_high_watermark_makes_a_partition_not_ready() -> None:
    readiness = PartitionReadiness()
    assert judge(readiness, 100.0).ready
    assert judge(readiness, 110.0, high_watermark_at=100.0).ready
    assert judge(readiness, 110.1, high_watermark_at=100.0).reason == "high_watermark_old"


@pytest.mark.parametrize("reason", ["unknown_version", "memory_hard_limit", "broker_clock_ahead", "topic_recreated"])
def test_a_stopped_partition_says_why(reason: str) -> None:
    readiness = PartitionReadiness()
    assert judge(readiness, 100.0).ready
    assert judge(readiness, 101.0, stopped=reason).reason == reason
    assert judge(readiness, 102.0).ready

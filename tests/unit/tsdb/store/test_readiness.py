"""Readiness: enters below 5 s, leaves above 20 s, never flaps on idle partitions."""

from __future__ import annotations

import pytest

from tsdb.store.readiness import MARKS_MAX, Observation, PartitionReadiness, ReadinessEvaluator

HOUR_S = 3600.0


def evaluate(evaluator: ReadinessEvaluator, at_s: float, **changes: object) -> PartitionReadiness:
    values: dict[str, object] = {
        "next_offset": 10,
        "applied_broker_ms": int(at_s * 1000),
        "high_watermark": 10,
        "high_watermark_at": at_s,
    }
    values.update(changes)
    return evaluator.evaluate(Observation(**values), now_ms=int(at_s * 1000), monotonic=at_s)  # type: ignore[arg-type]


def test_a_caught_up_partition_is_ready_with_no_lag() -> None:
    assert evaluate(ReadinessEvaluator(), 100.0) == PartitionReadiness(True, "", 0, 0)


def test_an_empty_partition_is_ready_once_its_high_watermark_is_known() -> None:
    evaluator = ReadinessEvaluator()
    unknown = evaluate(evaluator, 1.0, next_offset=0, applied_broker_ms=None, high_watermark=None)
    assert unknown.reason == "high_watermark_unknown"
    assert evaluate(evaluator, 2.0, next_offset=0, applied_broker_ms=None, high_watermark=0).ready


def test_replay_is_not_ready_until_the_lag_is_below_five_seconds() -> None:
    evaluator = ReadinessEvaluator()
    before_first = evaluate(evaluator, 100.0, next_offset=0, applied_broker_ms=None)
    assert before_first.reason == "replaying"
    assert before_first.lag_ms is None
    behind = evaluate(evaluator, 101.0, next_offset=1, applied_broker_ms=50_000)
    assert (behind.reason, behind.lag_records, behind.lag_ms) == ("replaying", 9, 51_000)
    assert not evaluate(evaluator, 101.0, next_offset=9, applied_broker_ms=96_000).ready
    assert evaluate(evaluator, 101.0, next_offset=9, applied_broker_ms=96_001).ready


def test_a_ready_partition_leaves_above_twenty_seconds_and_returns_below_five() -> None:
    evaluator = ReadinessEvaluator()
    assert evaluate(evaluator, 100.0).ready
    assert evaluate(evaluator, 120.0, high_watermark=11, applied_broker_ms=100_000).ready
    left = evaluate(evaluator, 120.001, high_watermark=11, applied_broker_ms=100_000)
    assert (left.ready, left.reason, left.lag_ms) == (False, "lagging", 20_001)
    assert not evaluate(evaluator, 126.0, next_offset=10, high_watermark=13, applied_broker_ms=115_000).ready
    assert not evaluate(evaluator, 126.0, next_offset=11, high_watermark=13, applied_broker_ms=115_000).ready
    assert evaluate(evaluator, 126.0, next_offset=12, high_watermark=13, applied_broker_ms=116_001).reason == "lagging"
    assert evaluate(evaluator, 126.1, next_offset=13, high_watermark=13, applied_broker_ms=121_101).ready


def test_an_idle_hour_does_not_flap_when_the_next_record_arrives() -> None:
    evaluator = ReadinessEvaluator()
    applied_ms = 100_000
    for second in range(int(HOUR_S)):
        at = 100.0 + second
        assert evaluate(evaluator, at, applied_broker_ms=applied_ms).ready
    readiness = evaluate(evaluator, 101.0 + HOUR_S, applied_broker_ms=applied_ms, high_watermark=11)
    assert readiness.ready
    assert readiness.lag_ms == 2_000


def test_a_stall_shows_although_the_brokers_clock_is_minutes_ahead() -> None:
    evaluator = ReadinessEvaluator()
    ahead_ms = 400_000
    assert evaluate(evaluator, 100.0, applied_broker_ms=ahead_ms).ready
    for second in range(1, 21):
        assert evaluate(evaluator, 100.0 + second, applied_broker_ms=ahead_ms, high_watermark=11).ready
    stalled = evaluate(evaluator, 120.5, applied_broker_ms=ahead_ms, high_watermark=11)
    assert (stalled.ready, stalled.reason, stalled.lag_ms) == (False, "lagging", 20_500)


def test_a_store_a_steady_second_behind_is_ready_although_it_never_catches_up() -> None:
    evaluator = ReadinessEvaluator()
    for second in range(100, 200):
        behind = {"next_offset": second, "applied_broker_ms": (second - 1) * 1000, "high_watermark": second + 1}
        assert evaluate(evaluator, float(second), **behind).lag_ms == 1000
        assert evaluate(evaluator, float(second), **behind).ready


def test_an_old_high_watermark_makes_a_partition_not_ready() -> None:
    evaluator = ReadinessEvaluator()
    assert evaluate(evaluator, 100.0).ready
    assert evaluate(evaluator, 110.0, high_watermark_at=100.0).ready
    assert evaluate(evaluator, 110.1, high_watermark_at=100.0).reason == "high_watermark_old"


@pytest.mark.parametrize("reason", ["unknown_version", "memory_hard_limit", "broker_clock_ahead", "topic_recreated"])
def test_a_stopped_partition_has_its_reason(reason: str) -> None:
    evaluator = ReadinessEvaluator()
    assert evaluate(evaluator, 100.0).ready
    assert evaluate(evaluator, 101.0, stopped=reason).reason == reason
    assert evaluate(evaluator, 102.0).ready


def test_a_lag_beyond_the_objective_is_measured_without_the_brokers_clock() -> None:
    evaluator = ReadinessEvaluator()
    for half in range(200, 260):
        # The partition is three seconds behind, and the broker's clock a minute ahead: by broker times alone nothing is
        # missing.
        at = half / 2
        ahead_ms = int(at * 1000) + 60_000
        behind = evaluate(evaluator, at, next_offset=half - 6, high_watermark=half, applied_broker_ms=ahead_ms)
    assert behind.ready
    assert behind.lag_ms == 3_000


@pytest.mark.parametrize(("age_s", "lag_ms"), [(0.0, 0), (0.5, 0), (1.0, 0), (1.5, 1_500), (9.0, 9_000)])
def test_a_caught_up_partition_lags_by_the_age_of_an_old_high_watermark(age_s: float, lag_ms: int) -> None:
    assert evaluate(ReadinessEvaluator(), 100.0 + age_s, high_watermark_at=100.0).lag_ms == lag_ms


def test_high_watermarks_that_came_while_nobody_read_count() -> None:
    evaluator = ReadinessEvaluator()
    evaluate(evaluator, 100.0)
    for second in range(101, 200):
        evaluator.observe(10, 10, float(second))
    assert evaluate(evaluator, 199.5, high_watermark=12, applied_broker_ms=100_000).lag_ms == 500


def test_a_long_lag_takes_no_more_memory_and_stays_an_upper_bound() -> None:
    evaluator = ReadinessEvaluator()
    for half in range(20_000):
        at = half / 2
        seen = evaluate(evaluator, at, next_offset=max(0, half - 2_000), high_watermark=half, applied_broker_ms=0)
        assert len(evaluator._marks) <= MARKS_MAX
    assert seen.lag_ms is not None
    assert 1_000_000 <= seen.lag_ms <= 1_500_000


@pytest.mark.parametrize(
    ("age_s", "next_offset", "lag_records"), [(0.5, 10, 0), (1.5, 10, None), (60.0, 10, None), (60.0, 4, 6)]
)
def test_a_lag_of_0_records_is_known_only_while_the_log_answers(
    age_s: float, next_offset: int, lag_records: int | None
) -> None:
    found = evaluate(ReadinessEvaluator(), 100.0 + age_s, high_watermark_at=100.0, next_offset=next_offset)
    assert found.lag_records == lag_records

"""Partition: a status on the wire, and the reads that it lets pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import new_head
from support.examples import examples
from tsdb.head.state import HeadSizes, HeadState, Hole
from tsdb.model.clock import ManualClock
from tsdb.model.errors import HoleInRange, OutOfCoverage, Unavailable
from tsdb.model.lag import LAG_UNKNOWN
from tsdb.replay.replay import PartitionProgress
from tsdb.store.partition import Partition, StorePartitionStatus, Tolerance
from tsdb.store.readiness import Observation, PartitionReadiness, ReadinessEvaluator
from tsdb.wire.state import encode_state

STATE = HeadState(
    since_offset=3,
    coverage_start_ms=1000,
    watermark_ms=2000,
    applied_offset=9,
    next_offset=10,
    from_start=False,
    holes=(Hole(1500, 1600, "corrupt_record", 7, pack_id=2**64 - 1),),
)
SIZES = HeadSizes(series=4, samples=40, bytes=400, index_bytes=100, late=0, slices=0, sealed_samples=0, sealed_bytes=0)
READY = PartitionReadiness(True, "", 0, 0)


def status(readiness: PartitionReadiness = READY, message: str = "", **changes: object) -> StorePartitionStatus:
    state = replace(STATE, **changes)  # type: ignore[arg-type]  # fields of HeadState
    return StorePartitionStatus(2, "topic", 10, 12, readiness, message, state=state, sizes=SIZES)


def test_every_field_of_a_status_is_on_the_wire() -> None:
    message = encode_state(status(PartitionReadiness(False, "lagging", 2, 25_000)).memory_state())
    assert (message.partition, message.topic_id, message.since_offset, message.coverage_start_ms) == (
        2,
        "topic",
        3,
        1000,
    )
    assert (message.applied_offset, message.next_offset, message.high_watermark) == (9, 10, 12)
    assert (message.lag_records, message.lag_ms, message.ready, message.reason) == (2, 25_000, False, "lagging")
    assert (message.watermark_ms, message.series, message.samples, message.bytes) == (2000, 4, 40, 400)
    [hole] = message.holes
    assert (hole.partition, hole.start_ms, hole.end_ms, hole.reason) == (2, 1500, 1600, "corrupt_record")
    assert (hole.record_offset, hole.pack_id) == (7, 2**64 - 1)


def test_unknown_fields_are_absent_on_the_wire() -> None:
    known = status(PartitionReadiness(False, "replaying", None, None), applied_offset=None, watermark_ms=None)
    message = encode_state(known.memory_state())
    assert not message.HasField("applied_offset")
    assert not message.HasField("watermark_ms")
    assert message.lag_ms == LAG_UNKNOWN


def lagging(lag_ms: int | None, reason: str = "lagging") -> StorePartitionStatus:
    return status(PartitionReadiness(False, reason, 7, lag_ms))


def test_a_read_is_refused_with_partition_and_lag() -> None:
    with pytest.raises(Unavailable) as caught:
        lagging(25_000).check_fresh(None)
    assert caught.value.reason == "lagging"
    assert caught.value.metadata == {"partition": "2", "lag_ms": "25000", "lag_records": "7"}
    assert caught.value.retry_after_s is not None


def test_the_callers_bound_on_lag_replaces_the_stores() -> None:
    lagging(25_000).check_fresh(25_000)
    with pytest.raises(Unavailable, match="the request allows 24999 ms"):
        lagging(25_000).check_fresh(24_999)
    status(PartitionReadiness(True, "", 1, 3000)).check_fresh(None)
    with pytest.raises(Unavailable) as caught:
        status(PartitionReadiness(True, "", 1, 3000)).check_fresh(2000)
    assert caught.value.reason == "lagging"


@pytest.mark.parametrize("reason", ["high_watermark_old", "high_watermark_unknown", "unknown_version", "memory_hard"])
def test_a_bound_on_lag_does_not_help_when_the_lag_is_not_the_reason(reason: str) -> None:
    with pytest.raises(Unavailable) as caught:
        lagging(0, reason).check_fresh(1 << 40)
    assert caught.value.reason == reason


def test_a_partition_without_a_lag_is_not_called_behind_the_log() -> None:
    with pytest.raises(Unavailable) as caught:
        lagging(0, "memory_hard").check_fresh(None)
    assert caught.value.message == "partition 2 is not ready: memory_hard"
    assert "behind" not in lagging(0, "memory_hard").warning(None)
    with pytest.raises(Unavailable, match="partition 2 is behind the log: lagging, lag 25000 ms, 7 records"):
        lagging(25_000).check_fresh(None)


def test_an_unknown_lag_is_over_every_bound() -> None:
    with pytest.raises(Unavailable) as caught:
        lagging(None, "replaying").check_fresh(1 << 40)
    assert caught.value.reason == "replaying"


def test_a_stopped_partition_has_its_message() -> None:
    with pytest.raises(Unavailable, match="a newer writer is on the log"):
        status(PartitionReadiness(False, "unknown_version", 7, 9), "a newer writer is on the log").check_fresh(None)


def test_a_range_before_coverage_is_refused_unless_the_whole_log_is_in_memory() -> None:
    status().memory_state().check_coverage(1000)
    with pytest.raises(OutOfCoverage) as caught:
        status().memory_state().check_coverage(999)
    assert caught.value.metadata == {"partition": "2", "coverage_start_ms": "1000", "asked_start_ms": "999"}
    status(from_start=True).memory_state().check_coverage(-5)


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "touches"), [(1400, 1500, False), (1600, 1700, False), (1599, 1600, True)]
)
def test_a_hole_is_named_exactly_when_the_range_touches_it(start_ms: int, end_ms: int, touches: bool) -> None:
    if not touches:
        Tolerance().check_holes([status().memory_state()], start_ms, end_ms)
        return
    with pytest.raises(HoleInRange, match=r"\[1500, 1600\) may be lost: corrupt_record, record_offset 7"):
        Tolerance().check_holes([status().memory_state()], start_ms, end_ms)


def test_an_answer_claims_the_applied_offset_from_before_and_coverage_and_holes_from_after() -> None:
    later = replace(STATE, applied_offset=20, next_offset=21, since_offset=5, coverage_start_ms=1100, holes=())
    answer = STATE.through(later)
    assert (answer.applied_offset, answer.next_offset) == (9, 10)
    assert (answer.since_offset, answer.coverage_start_ms, answer.holes) == (5, 1100, ())


def test_a_fresh_start_is_answered_from_the_new_head_with_its_own_progress() -> None:
    clock = ManualClock(1000)
    partition = Partition(0, "topic", new_head(), PartitionProgress(10), ReadinessEvaluator(), clock)
    partition.observe_high_watermark(10, clock.monotonic())
    assert partition.status().readiness.ready
    fresh = new_head(since_offset=20)
    partition.renew(fresh, PartitionProgress(20, stopped="broker_clock_ahead", stopped_message="wrong clock"))
    head, now = partition.evaluate()
    assert head is fresh
    assert (now.next_offset, now.readiness.reason, now.stopped_message) == (20, "broker_clock_ahead", "wrong clock")
    with pytest.raises(Unavailable, match="wrong clock"):
        partition.check_going()


def test_the_workers_waiting_reason_is_shown_until_it_is_over() -> None:
    clock = ManualClock(1000)
    partition = Partition(0, "topic", new_head(), PartitionProgress(10), ReadinessEvaluator(), clock)
    partition.observe_high_watermark(10, clock.monotonic())
    partition.observe_waiting("memory_hard")
    assert partition.status().readiness.reason == "memory_hard"
    partition.observe_waiting("")
    assert partition.status().readiness.ready


def test_the_status_of_a_caught_up_partition_is_reused_while_nothing_changes() -> None:
    clock = ManualClock(1000)
    head, progress = new_head(), PartitionProgress(10)
    partition = Partition(0, "topic", head, progress, ReadinessEvaluator(), clock)
    partition.observe_high_watermark(10, clock.monotonic())
    _, snapshot = partition.evaluate()
    state = partition.memory_state(snapshot, head.state())
    clock.advance(1000)
    assert partition.evaluate()[1] is snapshot
    assert partition.memory_state(snapshot, head.state()) is state
    progress.next_offset += 1
    moved = partition.evaluate()[1]
    assert moved.next_offset == 11
    assert partition.memory_state(moved, head.state()).next_offset == 11


class Watched:
    """A partition, and beside it a readiness evaluator without a cache, with the same observations."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.progress = PartitionProgress(10)
        self.partition = Partition(0, "topic", new_head(), self.progress, ReadinessEvaluator(), self.clock)
        self._evaluator = ReadinessEvaluator()
        self._waiting = ""
        self._high_watermark: int | None = None
        self._high_watermark_at = 0.0

    def apply(self, records: int, behind_ms: int) -> None:
        self.progress.next_offset += records
        self.progress.applied_broker_ms = self.clock.now_ms() - behind_ms

    def poll(self, ahead: int) -> None:
        self._high_watermark, self._high_watermark_at = self.progress.next_offset + ahead, self.clock.monotonic()
        self.partition.observe_high_watermark(self._high_watermark, self._high_watermark_at)

    def wait(self, reason: str) -> None:
        self._waiting = reason
        self.partition.observe_waiting(reason)

    def stop(self) -> None:
        self.progress.stopped = self.progress.stopped_message = "unknown_version"

    def renew(self, records: int) -> None:
        self.progress = PartitionProgress(records)
        self.partition.renew(new_head(), self.progress)

    def check(self) -> None:
        seen = Observation(
            self.progress.next_offset,
            self.progress.applied_broker_ms,
            self._high_watermark,
            self._high_watermark_at,
            self.progress.stopped or self._waiting,
        )
        readiness = self._evaluator.evaluate(seen, now_ms=self.clock.now_ms(), monotonic=self.clock.monotonic())
        _, snapshot = self.partition.evaluate()
        assert (snapshot.readiness, snapshot.next_offset, snapshot.high_watermark, snapshot.stopped_message) == (
            readiness,
            seen.next_offset,
            seen.high_watermark,
            self.progress.stopped_message,
        )


events = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from([1, 1000, 4000, 9000, 30_000])),
    st.tuples(st.just("apply"), st.integers(1, 3), st.sampled_from([0, 3_000, 12_000, 40_000])),
    st.tuples(st.just("poll"), st.sampled_from([0, 0, 0, 1, 5, -2])),
    st.tuples(st.just("wait"), st.sampled_from(["", "", "memory_hard"])),
    st.tuples(st.just("renew"), st.integers(8, 14)),
    st.tuples(st.just("stop")),
)


@given(st.lists(events, max_size=30))
@settings(max_examples=examples(300))
def test_a_cached_readiness_equals_an_evaluated_one(done: list[tuple[Any, ...]]) -> None:
    watched = Watched()
    for name, *arguments in done:
        if name == "advance":
            watched.clock.advance(*arguments)
        else:
            getattr(watched, name)(*arguments)
        watched.check()
        watched.check()

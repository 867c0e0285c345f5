"""The watermark poller: high watermarks of the log, which age while it does not answer."""

from __future__ import annotations

from support.counters import sample
from support.data.heads import new_head
from support.fakes.replay_log import ReplayLog
from tsdb.codec.records.log_record import encode_tick
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.replay.replay import PartitionProgress
from tsdb.store.partition import Partition
from tsdb.store.readiness import HIGH_WATERMARK_AGE_MAX_S, ReadinessEvaluator
from tsdb.store.watermarks import WatermarkPoller


def test_high_watermarks_are_those_of_the_log_and_age_when_it_does_not_answer() -> None:
    clock = ManualClock(1000)
    log = ReplayLog(clock)
    partitions = {
        number: Partition(number, "topic", new_head(), PartitionProgress(0), ReadinessEvaluator(), clock)
        for number in range(2)
    }
    poller = WatermarkPoller(log.log, partitions, clock)
    assert partitions[0].status().readiness.reason == "high_watermark_unknown"
    log.put(encode_tick(), partition=1)
    poller.poll()
    assert [partition.status().high_watermark for partition in partitions.values()] == [0, 1]
    failures = sample("tsdb_store_watermark_poll_failures_total")
    polls = sample("tsdb_store_watermark_polls_total")
    log.ask_errors += [Unavailable("away", reason="timeout")] * 2
    clock.advance(round(HIGH_WATERMARK_AGE_MAX_S * 1000) + 1)
    poller.poll()
    poller.poll()
    assert partitions[0].status().readiness.reason == "high_watermark_old"
    assert sample("tsdb_store_watermark_poll_failures_total") == failures + 2
    assert sample("tsdb_store_watermark_polls_total") == polls + 2
    poller.poll()
    assert partitions[0].status().readiness.ready


def test_a_poller_that_never_started_has_ended() -> None:
    assert WatermarkPoller(ReplayLog(ManualClock()).log, {}, ManualClock()).join(0.0)

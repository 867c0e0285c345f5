"""The watermark poller: high watermarks of the log, which age while it does not answer, and are fetched for a bounded
read."""

from __future__ import annotations

import pytest

from support.counters import sample
from support.data.heads import new_head
from support.fakes.replay_log import ReplayLog
from support.servers.queriers import ServedHeads, context
from tsdb.codec.records.log_record import encode_tick
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.replay.replay import PartitionProgress
from tsdb.store.partition import Partition
from tsdb.store.readiness import HIGH_WATERMARK_AGE_MAX_S, ReadinessEvaluator
from tsdb.store.reads import REFRESH_S
from tsdb.store.watermarks import WatermarkPoller
from tsdb.v1 import reader_pb2


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


class Bounded:
    """A store of one partition that has applied the whole log, and a read that allows a lag of one second."""

    def __init__(self, remaining_s: float | None = None) -> None:
        self.waits: list[float] = []
        self.end: int | None = None  # End of the log by the next fresh high watermark; None: the log does not answer.
        self.remaining_s = remaining_s
        self.head = new_head()
        self.served = ServedHeads({0: self.head}, refresh=self._refresh)

    def _refresh(self, within_s: float) -> None:
        self.waits.append(within_s)
        if self.end is not None:
            self.served.partitions[0].observe_high_watermark(self.end, self.served.clock.monotonic())

    def read(self, *, allow_stale: bool = False) -> None:
        request = reader_pb2.LabelNamesRequest()
        request.options.max_lag_ms = 1000
        request.options.allow_stale = allow_stale
        self.served.service.LabelNames(request, context(self.remaining_s))


def test_a_bounded_read_fetches_a_high_watermark_that_is_only_too_old() -> None:
    bounded = Bounded()
    bounded.read()
    assert not bounded.waits, "the high watermark is fresh"
    bounded.served.clock.advance(1004)
    bounded.end = 0
    bounded.read()
    assert bounded.waits == [REFRESH_S]
    bounded.read()
    assert len(bounded.waits) == 1, "it is fresh again"


@pytest.mark.parametrize("end", [None, 1])
def test_it_is_refused_when_the_log_does_not_answer_or_has_newer_records(end: int | None) -> None:
    bounded = Bounded()
    bounded.served.clock.advance(1004)
    bounded.end = end
    with pytest.raises(Unavailable, match="behind the log: lagging, lag 1004 ms"):
        bounded.read()
    assert len(bounded.waits) == 1


def test_a_partition_with_records_to_apply_is_refused_without_a_request() -> None:
    bounded = Bounded()
    bounded.served.partitions[0].observe_high_watermark(1, bounded.served.clock.monotonic())
    bounded.served.clock.advance(1004)
    with pytest.raises(Unavailable, match="behind the log"):
        bounded.read()
    assert not bounded.waits


def test_the_wait_ends_with_the_time_of_the_caller_and_a_stale_read_waits_for_nothing() -> None:
    bounded = Bounded(remaining_s=0.1)
    bounded.served.clock.advance(1004)
    bounded.read(allow_stale=True)
    assert not bounded.waits
    with pytest.raises(Unavailable):
        bounded.read()
    (wait_s,) = bounded.waits
    assert 0 < wait_s < 0.1


def test_a_refresh_waits_for_a_request_that_begins_after_it() -> None:
    clock = ManualClock(1000)
    log = ReplayLog(clock)
    partition = Partition(0, "topic", new_head(), PartitionProgress(0), ReadinessEvaluator(), clock)
    poller = WatermarkPoller(log.log, {0: partition}, clock)
    poller.poll()
    clock.advance(1004)
    assert partition.awaits_watermark(1000)
    poller.start()
    try:
        poller.refresh(60.0)
        assert not partition.awaits_watermark(1000)
        assert partition.status().readiness.lag_ms == 0
    finally:
        poller.close()
        assert poller.join(60.0)


def test_a_refresh_of_a_log_that_does_not_answer_returns_at_once() -> None:
    clock = ManualClock(1000)
    log = ReplayLog(clock)
    log.ask_errors.append(Unavailable("away", reason="timeout"))
    poller = WatermarkPoller(log.log, {}, clock)
    poller.poll()
    poller.refresh(3600.0)

"""The events that a group reads for one partition, and the ticks of an idle partition."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from chunker.source import EVENTS_MAX, PartitionSource
from chunker.ticker import AGAIN_S, IDLE_S, Ticker
from support.fakes.fake_log import FakeLog, Fault
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, EndOfLog, Event, Group, Log, RecordBatch
from tsdb.model.clock import ManualClock
from tsdb.model.errors import LostOffsets, Unavailable


class Seeks:
    """The methods of a group that a source uses."""

    def __init__(self) -> None:
        self.seeks: list[tuple[str, int, int]] = []
        self.rests: list[tuple[str, int]] = []

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self.seeks.append((topic, partition, next_offset))

    def pause(self, topic: str, partition: int) -> None:
        self.rests.append((topic, partition))


def batch(offset: int) -> RecordBatch:
    none = np.zeros(2, np.int64)
    return RecordBatch(METRICS, 1, b"", none, b"", none, np.array([offset], np.int64), np.array([0], np.int64))


def test_events_are_polled_once_in_order() -> None:
    seeks = Seeks()
    source = PartitionSource(cast(Group, seeks), (METRICS, 1))
    events: list[Event] = [batch(0), batch(1), EndOfLog(METRICS, 1, 2)]
    for event in events:
        source.put(event)
    assert source.end_offset == 2
    assert source.poll(0.0, max_records=1) == events
    assert source.poll(0.0, max_records=1) == []
    assert seeks.seeks == []


def test_events_that_do_not_fit_are_read_again() -> None:
    seeks = Seeks()
    source = PartitionSource(cast(Group, seeks), (METRICS, 1))
    for offset in range(EVENTS_MAX + 3):
        source.put(batch(offset))
    source.put(EndOfLog(METRICS, 1, EVENTS_MAX + 3))
    assert source.end_offset is None, "the end was not reached"
    assert len(source.poll(0.0, max_records=1)) == EVENTS_MAX
    assert seeks.seeks == [(METRICS, 1, EVENTS_MAX)]
    source.put(batch(EVENTS_MAX))
    assert len(source.poll(0.0, max_records=1)) == 1


def test_a_resting_source_drops_its_queue_and_a_seek_ends_the_rest() -> None:
    seeks = Seeks()
    source = PartitionSource(cast(Group, seeks), (METRICS, 1))
    for offset in range(EVENTS_MAX + 3):
        source.put(batch(offset))
    source.pause(METRICS, 1)
    assert source.poll(0.0, max_records=1) == []
    assert (seeks.seeks, seeks.rests) == ([], [(METRICS, 1)])
    source.seek(METRICS, 1, 0)
    source.put(batch(0))
    assert len(source.poll(0.0, max_records=1)) == 1


def test_lost_offsets_are_raised_once_and_a_seek_drops_them() -> None:
    seeks = Seeks()
    source = PartitionSource(cast(Group, seeks), (METRICS, 1))
    source.fail(LostOffsets("gone"))
    with pytest.raises(LostOffsets):
        source.poll(0.0, max_records=1)
    assert source.poll(0.0, max_records=1) == []
    source.put(batch(0))
    source.fail(LostOffsets("gone"))
    source.seek(METRICS, 1, 9)
    assert source.poll(0.0, max_records=1) == []
    assert seeks.seeks == [(METRICS, 1, 9)]


class TickerBench:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.log = FakeLog(2, self.clock)
        self.ticker = Ticker(cast(Log, self.log), 1, self.clock, StageMetrics("python"))

    def tick(self, due_ms: int, *, at_end: bool = True, later_s: float = 0.0) -> int:
        """Number of ticks so far."""
        self.clock.advance(round(later_s * 1000))
        self.ticker.tick_if_due(at_end=at_end, due_ms=due_ms)
        return len(self.log.of(METRICS, 1))


def test_a_partition_ticks_when_it_is_idle_and_the_moment_has_passed() -> None:
    bench = TickerBench()
    due_ms = bench.clock.now_ms() + 2_000
    assert bench.tick(due_ms) == 0
    assert bench.tick(due_ms, later_s=IDLE_S) == 0, "not yet due"
    assert bench.tick(due_ms, later_s=2.0) == 1
    assert bench.log.of(METRICS, 1)[0].value == encode_tick()


def test_a_partition_that_gets_records_needs_no_tick() -> None:
    bench = TickerBench()
    due_ms = bench.clock.now_ms()
    for _ in range(10):
        assert bench.tick(due_ms, at_end=False, later_s=IDLE_S / 2) == 0
        assert bench.tick(due_ms, later_s=IDLE_S / 2) == 0


def test_it_ticks_again_while_the_brokers_clock_is_behind_and_after_failures() -> None:
    bench = TickerBench()
    bench.tick(0)
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("away"))
    assert bench.tick(0, later_s=IDLE_S) == 0
    bench.log.plan = lambda topic, partition, value: None
    assert bench.tick(0, later_s=AGAIN_S / 2) == 0
    assert bench.tick(0, later_s=AGAIN_S / 2) == 1
    assert bench.tick(0, later_s=AGAIN_S) == 2

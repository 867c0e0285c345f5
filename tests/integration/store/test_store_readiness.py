"""Attacks the promise that a stall shows in readiness within 30 s and nothing else does, on both logs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.counters import sample
from support.data.feeder import Feeder
from support.data.heads import Sample, canonical_of
from support.fakes.held_log import HeldLog, JumpingClock
from support.servers.logs import LogFactory, wait_until
from support.servers.node import Node, make_topics, refused, store_options
from tsdb.client import ReadOptions
from tsdb.model.errors import Unavailable
from tsdb.store.readiness import HIGH_WATERMARK_AGE_MAX_S
from tsdb.store.reporter import StoreReporter
from tsdb.store.store import ALIVE_WITHIN_S

OPTIONS = store_options(lag_enter_s=0.5, lag_leave_s=2.0)
HOUR_MS = 3_600_000


class Bench:
    """A log whose records and answers can be held back from a store, and one series."""

    def __init__(self, factory: LogFactory) -> None:
        log = make_topics(factory, 1)
        self.held = HeldLog(log)
        self.clock = JumpingClock()
        self.last_ms = 0
        self.feeder = Feeder(log)
        self.feeder.announce([0], 0, self.clock.now_ms())

    def write(self, ago_ms: int = 0) -> Sample:
        """Append one sample, with the present broker time or an earlier one."""
        at_ms = self.last_ms = max(self.clock.now_ms() - ago_ms, self.last_ms + 1)
        written = (0, at_ms, float(at_ms))
        self.feeder.samples(0, [written], at_ms)
        return written

    def node(self) -> Node:
        return Node(self.held.log, OPTIONS, clock=self.clock)

    def shown(self, node: Node, **options: object) -> list[int]:
        read = ReadOptions(**options)  # type: ignore[arg-type]
        end_ms = self.clock.now_ms() + HOUR_MS
        result = node.ask("m_0", 0, end_ms, options=read)
        assert set(result.canonical) <= {canonical_of(0)}
        return [int(ts_ms) for ts_ms in result.ts_ms]


@pytest.fixture
def bench(log_factory: LogFactory) -> Bench:
    return Bench(log_factory)


def test_a_store_is_not_ready_before_it_has_replayed_and_says_how_far_it_is(bench: Bench) -> None:
    times = [bench.write(ago_ms)[1] for ago_ms in (HOUR_MS, 2000)]
    bench.held.hold()
    with bench.node() as node:
        node.wait_reason("replaying")
        status = node.status()
        assert (status.next_offset, status.high_watermark, status.readiness.lag_records) == (0, 2, 2)
        with refused(Unavailable, "replaying") as errors:
            bench.shown(node)
        assert errors[0].metadata["lag_records"] == "2"
        assert bench.shown(node, allow_stale=True) == []
        [state] = node.client.coverage()
        assert (state.ready, state.reason) == (False, "replaying")
        bench.held.release()
        node.wait_ready()
        assert bench.shown(node) == times


def test_health_and_metrics_follow_readiness(bench: Bench) -> None:
    health: dict[int | None, bool] = {}
    bench.write()
    with bench.node().wait_ready_on_entry() as node:
        reporter = StoreReporter(
            node.store, lambda partition, serving: health.update({partition: serving}), bench.clock
        )
        reporter.start()
        wait_until(lambda: health == {None: True, 0: True})
        assert sample("tsdb_store_partition_ready", partition="0") == 1
        assert sample("tsdb_store_applied_offset", partition="0") == 0
        bench.held.hold_now()
        bench.write()
        wait_until(lambda: health == {None: False, 0: False})
        assert sample("tsdb_store_partition_ready", partition="0") == 0
        assert sample("tsdb_store_lag_records", partition="0") == 1
        assert sample("tsdb_store_lag_seconds", partition="0") > OPTIONS.lag_leave_s
        bench.held.release()
        wait_until(lambda: health == {None: True, 0: True})
        assert sample("tsdb_store_applied_offset", partition="0") == 1
        reporter.close()
        assert reporter.join(5.0)


def test_an_empty_log_is_ready_at_once(bench: Bench) -> None:
    with bench.node().wait_ready_on_entry() as node:
        assert bench.shown(node) == []


def test_injected_lag_takes_a_store_out_and_its_end_brings_it_back(bench: Bench) -> None:
    first = bench.write()[1]
    with bench.node().wait_ready_on_entry() as node:
        bench.held.hold_now()
        second = bench.write()[1]
        began = bench.clock.monotonic()
        node.wait_reason("lagging")
        assert bench.clock.monotonic() - began >= OPTIONS.lag_leave_s - 0.6, "left before its bound"
        with refused(Unavailable, "lagging") as errors:
            bench.shown(node)
        assert int(errors[0].metadata["lag_ms"]) > OPTIONS.lag_leave_s * 1000
        assert bench.shown(node, max_lag_ms=HOUR_MS)[0] == first
        assert node.store.stalled() == "", "lag kills no process"
        bench.held.release()
        node.wait_ready()
        assert bench.shown(node) == [first, second]
        with refused(Unavailable, "lagging"):
            bench.held.hold_now()
            bench.write()
            wait_until(lambda: bool(node.status().readiness.lag_ms))
            bench.shown(node, max_lag_ms=0)


def test_an_idle_hour_leaves_a_store_ready_and_a_record_after_it_too(bench: Bench) -> None:
    bench.write()
    with bench.node().wait_ready_on_entry() as node:
        for _ in range(60):
            bench.clock.jump(60.0)
            node.store._poller.poll()
            assert node.reason() == ""
        bench.held.hold_now()
        bench.write()
        node.store._poller.poll()
        assert node.reason() == ""
        bench.held.release()
        node.wait_ready()


def test_a_log_that_does_not_answer_is_told_by_the_age_of_the_high_watermark_and_recovers(bench: Bench) -> None:
    first = bench.write()[1]
    with bench.node().wait_ready_on_entry() as node:
        bench.held.away = True
        bench.clock.jump(HIGH_WATERMARK_AGE_MAX_S + 1)
        node.wait_reason("high_watermark_old")
        with refused(Unavailable, "high_watermark_old"):
            bench.shown(node)
        with refused(Unavailable, "high_watermark_old"):
            bench.shown(node, max_lag_ms=HOUR_MS)
        assert bench.shown(node, allow_stale=True) == [first]
        assert node.store.stalled() == ""
        bench.held.away = False
        node.wait_ready()
        second = bench.write()[1]
        node.wait_ready()
        assert bench.shown(node) == [first, second]


def test_a_worker_that_hangs_is_no_longer_alive_and_its_lag_shows(bench: Bench) -> None:
    bench.write()
    with bench.node().wait_ready_on_entry() as node:
        head = node.store.partitions[0].head
        with head.contents.lock:  # A step that never returns.
            bench.write()
            wait_until(lambda: node.store.partitions[0].progress.next_offset == 1)
            wait_until(lambda: node.store._workers[0].silent_s() > 0.2)
            bench.clock.jump(ALIVE_WITHIN_S)
            assert "in one step for" in node.store.stalled()
        wait_until(lambda: node.store.stalled() == "")
        node.wait_ready()


def test_memory_at_its_hard_limit_stops_applying_and_nothing_is_lost(log_factory: LogFactory) -> None:
    bench = Bench(log_factory)
    times = [bench.write()[1] for _ in range(3)]
    limits = replace(OPTIONS.limits, memory_hard_bytes=0)
    with Node(bench.held.log, replace(OPTIONS, limits=limits), clock=bench.clock) as node:
        node.wait_reason("memory_hard")
        with refused(Unavailable, "memory_hard"):
            bench.shown(node)
        object.__setattr__(limits, "memory_hard_bytes", 1 << 30)
        node.wait_ready()
        assert bench.shown(node) == times

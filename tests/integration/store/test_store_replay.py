"""Attacks the promises that the log alone gives a store back, and that a read is exact or an error, on both logs."""

from __future__ import annotations

import time

import numpy as np
import pytest

from support.counters import sample
from support.data.feeder import Feeder
from support.data.heads import Sample, bits, canonical_of
from support.fakes.held_log import HeldLog
from support.fakes.replay_log import encoded, of_newer_version
from support.servers.logs import LogFactory, wait_until
from support.servers.node import Node, make_topics, refused
from tsdb.client import ReadOptions
from tsdb.log.interface import METRICS
from tsdb.model.errors import HoleInRange, OutOfCoverage, Unavailable
from tsdb.model.time_set import PRODUCTION

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
SLICE_MS = 10 * MINUTE_MS
NUMBERS = range(6)
EVERYTHING = '{__name__=~"m_.*"}'


class Bench:
    """A log with two partitions, known samples, and the times around them."""

    def __init__(self, factory: LogFactory) -> None:
        self.factory = factory
        self.log = make_topics(factory)
        self.now_ms = time.time_ns() // 1_000_000
        self.feeder = Feeder(self.log)
        for partition in (0, 1):
            self.feeder.announce(self.mine(partition), partition, self.now_ms)

    def mine(self, partition: int) -> list[int]:
        return [number for number in NUMBERS if number // 3 == partition]

    def minute(self, ago: int) -> int:
        return self.now_ms - ago * MINUTE_MS

    def fill(self, first: int = 60, last: int = 1, *, step: int = 1) -> None:
        """A record a minute and partition, with late samples among them."""
        rng = np.random.default_rng(first)
        for partition in (0, 1):
            records: list[tuple[int, list[Sample]]] = []
            for ago in range(first, last - 1, -step):
                at_ms = self.minute(ago)
                samples = [(number, at_ms - number, float(rng.normal())) for number in self.mine(partition)]
                samples += [
                    (number, at_ms - int(rng.integers(30 * MINUTE_MS)), -0.0) for number in self.mine(partition)
                ]
                records.append((at_ms, samples))
            self.feeder.many(partition, records)

    def want(self, start_ms: int, end_ms: int) -> dict[int, dict[int, bytes]]:
        found: dict[int, dict[int, float]] = {}
        for partition, twin in self.feeder.twins.items():
            found.update(twin.samples(self.mine(partition), start_ms, end_ms))
        return bits(found)

    def got(
        self,
        node: Node,
        start_ms: int,
        end_ms: int,
        encoding: str = "raw",
        options: ReadOptions | None = None,
    ) -> dict[int, dict[int, bytes]]:
        numbers = {canonical_of(number): number for number in NUMBERS}
        result = node.ask(EVERYTHING, start_ms, end_ms, encoding=encoding, options=options)
        return bits(
            {
                numbers[series.canonical]: dict(zip(series.ts_ms.tolist(), series.values.tolist(), strict=True))
                for series in result.series
            }
        )

    def check(self, node: Node, first: int = 95, last: int = -1) -> None:
        """Read everything between two moments, in both forms."""
        span = self.minute(first), self.minute(last)
        assert self.want(*span)
        for encoding in ("raw", "columns"):
            assert self.got(node, *span, encoding=encoding) == self.want(*span)


@pytest.fixture
def bench(log_factory: LogFactory) -> Bench:
    return Bench(log_factory)


def test_a_store_that_was_killed_comes_back_from_the_log_with_the_same_answers(bench: Bench) -> None:
    bench.fill()
    with Node(bench.log).wait_ready_on_entry() as node:
        bench.check(node)
        bench.fill(0, 0)
        # The first store is never closed, as if it was killed.
        with Node(bench.factory.open()).wait_ready_on_entry() as second:
            bench.check(second)
            node.wait_ready()
            bench.check(node)
            assert [s.state.applied_offset for s in second.statuses()] == [
                s.state.applied_offset for s in node.statuses()
            ]


def test_a_store_follows_what_is_written_while_it_reads(bench: Bench) -> None:
    with Node(bench.log).wait_ready_on_entry() as node:
        for ago in (3, 2, 1):
            bench.fill(ago, ago)
            node.wait_ready()
            bench.check(node, 60)


def test_a_corrupt_record_is_a_named_hole_again_after_every_replay(bench: Bench) -> None:
    bench.fill(3, 2)
    good = encoded((0, bench.minute(1), 1.0))
    offset = bench.feeder.value(0, good[:-5] + bytes([good[-5] ^ 0x40]) + good[-4:], bench.minute(1))
    bench.fill(0, 0)
    for _ in range(2):
        with Node(bench.log).wait_ready_on_entry() as node:
            with refused(HoleInRange, "hole") as errors:
                bench.got(node, bench.minute(60), bench.minute(-1))
            assert f"corrupt_record, record_offset {offset}" in errors[0].message
            assert (errors[0].metadata["partition"], errors[0].metadata["hole_reason"]) == ("0", "corrupt_record")
            around = int(errors[0].metadata["hole_start_ms"]), int(errors[0].metadata["hole_end_ms"])
            assert around == (bench.minute(1) - PRODUCTION.accept_past_ms, bench.minute(1) + PRODUCTION.ahead_ms + 1)
            with refused(HoleInRange, "hole"):
                node.client.series(EVERYTHING, start_ms=bench.minute(60))
            span = bench.minute(60), bench.minute(-1)
            assert bench.got(node, *span, options=ReadOptions(allow_holes=True)) == bench.want(*span)
            # The other partition lost nothing.
            node.client.select(EVERYTHING, *span, options=ReadOptions(partitions=[1]))


def test_a_sample_nobody_announced_is_a_hole_of_its_pack(bench: Bench) -> None:
    bench.feeder.value(0, encoded((0, bench.minute(2), 1.0), (5, bench.minute(1), 2.0)), bench.minute(1))
    with Node(bench.log).wait_ready_on_entry() as node:
        with refused(HoleInRange, "hole") as errors:
            bench.got(node, bench.minute(60), bench.minute(-1))
        assert "unknown_series, record_offset 0" in errors[0].message
        assert bench.got(node, bench.minute(60), bench.minute(1)) == {0: {bench.minute(2): np.float64(1.0).tobytes()}}
        [hole] = node.client.coverage()[0].holes
        assert (hole.start_ms, hole.end_ms, hole.pack_id) == (bench.minute(1), bench.minute(1) + 1, 7)


def test_a_record_of_a_newer_version_stops_its_partition_and_says_so(bench: Bench) -> None:
    bench.fill(3, 2)
    offset = bench.feeder.value(0, of_newer_version(encoded((0, bench.now_ms, 1.0))), bench.minute(1))
    with Node(bench.log) as node:
        node.wait_reason("unknown_version")
        wait_until(lambda: node.status(1).readiness.ready)
        with refused(Unavailable, "unknown_version") as errors:
            bench.got(node, bench.minute(60), bench.now_ms)
        assert f"partition 0, record_offset {offset}" in errors[0].message
        span = bench.minute(60), bench.minute(-1)
        node.client.select(EVERYTHING, *span, options=ReadOptions(partitions=[1]))
        assert bench.got(node, *span, options=ReadOptions(allow_stale=True)) == bench.want(*span)
        assert node.store.stalled() == ""


def test_a_broker_clock_far_ahead_stops_its_partition_with_an_alarm(bench: Bench) -> None:
    before = sample("tsdb_replay_bad_records_total", reason="broker_clock_ahead")
    bench.fill(2, 1)
    bench.feeder.tick(1, bench.minute(-6) + 30_000)
    with Node(bench.log) as node:
        node.wait_reason("broker_clock_ahead", 1)
        wait_until(lambda: node.status(0).readiness.ready)
        with refused(Unavailable, "broker_clock_ahead") as errors:
            bench.got(node, bench.minute(60), bench.now_ms)
        assert "partition 1" in errors[0].message
        assert sample("tsdb_replay_bad_records_total", reason="broker_clock_ahead") == before + 1


def test_a_sample_far_ahead_of_its_record_is_ignored_by_every_replay_and_counted(bench: Bench) -> None:
    before = sample("tsdb_replay_ignored_samples_total", reason="ahead")
    broker_ms = bench.minute(5)
    limit_ms = broker_ms + PRODUCTION.ahead_ms
    bench.feeder.samples(0, [(0, limit_ms, 1.0), (1, limit_ms + 1, 2.0)], broker_ms)
    for replays in (1, 2):
        with Node(bench.log).wait_ready_on_entry() as node:
            assert bench.got(node, bench.minute(60), bench.minute(-60)) == bench.want(
                bench.minute(60), bench.minute(-60)
            )
            assert sample("tsdb_replay_ignored_samples_total", reason="ahead") == before + replays


def test_a_topic_made_anew_is_a_named_error_and_never_another_logs_records(bench: Bench) -> None:
    bench.fill(2, 1)
    with Node(bench.log).wait_ready_on_entry() as node:
        bench.factory.recreate(bench.factory.topics(), METRICS)
        node.wait_reason("topic_recreated")
        node.wait_reason("topic_recreated", 1)
        with refused(Unavailable, "topic_recreated"):
            bench.got(node, bench.minute(60), bench.now_ms)


def test_a_log_trimmed_below_a_lagging_head_makes_a_fresh_start_and_never_a_short_answer(bench: Bench) -> None:
    before = sample("tsdb_replay_lost_offsets_total")
    bench.fill(60, 1)
    held = HeldLog(bench.log)
    held.hold()
    with Node(held.log) as node:
        node.wait_reason("replaying")
        assert node.status().state.from_start
        bench.factory.topics().trim(METRICS, {0: 20, 1: 20})
        held.release()
        node.wait_ready()
        assert sample("tsdb_replay_lost_offsets_total") == before + 2
        for state in node.client.coverage():
            assert (state.since_offset, state.from_start) == (20, False)
            assert state.coverage_start_ms == bench.minute(40) + 2 * PRODUCTION.ahead_ms
        with refused(OutOfCoverage, "out_of_coverage"):
            bench.got(node, bench.minute(20) - 1, bench.now_ms)
        bench.check(node, 20)
        bench.fill(0, 0)
        node.wait_ready()
        bench.check(node, 20)


def test_a_tick_moves_the_watermark_and_nothing_else(bench: Bench) -> None:
    bench.fill(2, 1)
    with Node(bench.log).wait_ready_on_entry() as node:
        offset = bench.feeder.tick(0, bench.now_ms)
        node.wait_ready()
        states = node.client.coverage()
        assert (states[0].applied_offset, states[0].watermark_ms) == (offset, bench.now_ms)
        assert states[1].watermark_ms == bench.minute(1)
        bench.check(node)


def test_an_imports_tick_sends_older_ranges_to_history_at_once_and_after_every_replay(bench: Bench) -> None:
    at_ms = bench.minute(60)
    bench.feeder.samples(0, [(0, at_ms - 2 * DAY_MS, 1.0), (1, at_ms - MINUTE_MS, 2.0)], at_ms)
    bench.feeder.tick(0, bench.minute(1), import_tick=True)
    coverage_ms = -(-(bench.minute(1) - PRODUCTION.least_hold_ms - DAY_MS) // SLICE_MS) * SLICE_MS
    for _ in range(2):
        with Node(bench.log).wait_ready_on_entry() as node:
            states = node.client.coverage()
            assert (states[0].from_start, states[1].from_start) == (False, True)
            assert states[0].coverage_start_ms >= coverage_ms
            with refused(OutOfCoverage, "out_of_coverage"):
                bench.got(node, states[0].coverage_start_ms - 1, bench.now_ms)
            span = states[0].coverage_start_ms, bench.now_ms
            assert bench.got(node, *span) == bench.want(*span) != {}


def test_a_store_of_some_partitions_serves_those_alone(bench: Bench) -> None:
    bench.fill(2, 1)
    with Node(bench.log, partitions=[1]).wait_ready_on_entry() as node:
        assert [state.partition for state in node.client.coverage()] == [1]
        got = bench.got(node, bench.minute(60), bench.now_ms)
        assert got == {n: v for n, v in bench.want(bench.minute(60), bench.now_ms).items() if n in bench.mine(1)}

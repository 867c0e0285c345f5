"""Plans of the streaming chunk stage: batch by batch they cover the log, each item once, within their limits.

The items build the same chunks as an uninterrupted chunk stage. No Spark takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from spark_backfill.building.build import build
from spark_backfill.building.items import BaseItem, Item, LateItem
from spark_backfill.building.plan import items_of, plan_partitions, range_of
from spark_backfill.pipeline.offsets import PipelineOffset, adopted
from spark_backfill.pipeline.planner import BatchLimits, Planner
from spark_backfill.places import Places
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.chunkers import uninterrupted
from support.servers.logs import LogFactory
from support.spark.pipelines import build_options, still
from tsdb.chunks.progress import Progress
from tsdb.chunks.resume import first_progress
from tsdb.codec.chunk.key import ChunkKey, HoleKey, WindowKey, decode_key
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, Log
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import FaultPlan
from tsdb.log.sqlite.log import SqliteLog
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.errors import InvalidRequest, LostOffsets, WrongTopic
from tsdb.model.time_set import DEMO

PARTITIONS = 2
RECORDED = RecordedLog(PARTITIONS, windows=3, empty_windows=4)
LIMITS = BatchLimits(stretch_records=200, records_max=700, windows_max=2)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as logs:
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        log = logs.open(clock=still(RECORDED.end_ms))
        RECORDED.write(log)
        yield log


def first_offset(log: Log) -> PipelineOffset:
    progress, _ = first_progress(0, BASE_MS, 0, DEMO)
    return adopted(PipelineOffset(), log.topic_id(METRICS), dict.fromkeys(range(PARTITIONS), progress))


def offsets(log: Log, limits: BatchLimits) -> list[PipelineOffset]:
    """Offsets of all batches, from the first query on, until there is no more work."""
    planner = Planner(log, build_options(log, Places()), limits)
    found = [first_offset(log)]
    while (after := planner.next(found[-1])) is not found[-1]:
        found.append(after)
    return found


def items(of: list[PipelineOffset]) -> list[Item]:
    return [item for offset in of for item in offset.items()]


def built(log: Log, wanted: list[Item], partition: int) -> set[tuple[bytes, bytes]]:
    options, clock = build_options(log, Places()), SystemClock()
    mine = (item for item in wanted if item.partition == partition)
    return {(record.key, record.value) for item in mine for record in build(item, log, options, clock)}


@pytest.mark.slow
@pytest.mark.parametrize("limits", [LIMITS, BatchLimits()])
def test_batches_build_the_records_of_an_uninterrupted_stage(log: Log, limits: BatchLimits) -> None:
    planned = items(offsets(log, limits))
    for partition in range(PARTITIONS):
        assert built(log, planned, partition) == uninterrupted(log, partition, DEMO)


def test_batches_follow_each_other_without_gap_or_overlap_and_keep_their_limits(log: Log) -> None:
    found = offsets(log, LIMITS)
    assert len(found) > 5
    for partition in range(PARTITIONS):
        for before, after in pairwise(found):
            was, now = before.partitions[partition], after.partitions[partition]
            late = sorted([*now.late, *(base[2:] for base in now.bases if base.late_first < base.late_end)])
            edges = [was.progress.position, *(end for _, end in late)]
            assert late == list(pairwise(edges)), "each record is scanned once"
            assert edges[-1] == now.progress.position
            windows = (now.progress.emitted_through_ms - was.progress.emitted_through_ms) // DEMO.window_ms
            assert 0 <= windows <= LIMITS.windows_max
            assert now.progress.position - was.progress.position <= LIMITS.records_max


def test_windows_without_any_record_share_an_item(log: Log) -> None:
    bases = [item for item in items(offsets(log, BatchLimits())) if isinstance(item, BaseItem)]
    assert any(item.end_ms - item.start_ms > DEMO.window_ms for item in bases)
    assert len(bases) < sum(item.end_ms - item.start_ms for item in bases) // DEMO.window_ms


def test_windows_that_the_log_never_had_whole_are_skipped(log: Log) -> None:
    start = first_offset(log)
    progress = start.partitions[0].progress
    whole_from_ms = progress.emitted_through_ms + 2 * DEMO.window_ms
    begun = Progress(progress.position, progress.emitted_through_ms, whole_from_ms)
    after = Planner(log, build_options(log, Places()), BatchLimits()).next(
        adopted(PipelineOffset(), log.topic_id(METRICS), dict.fromkeys(range(PARTITIONS), begun))
    )
    assert min(item.start_ms for item in after.items() if isinstance(item, BaseItem)) == whole_from_ms


def test_a_frozen_planner_never_plans_for_later_records(log: Log) -> None:
    planner = Planner(log, build_options(log, Places()), BatchLimits())
    planner.freeze()
    planned = planner.next(first_offset(log))
    log.append_sync(METRICS, 0, b"", timestamp_ms=RECORDED.end_ms + 100 * DEMO.window_ms)
    assert planner.next(planned) is planned


class CountedLog:
    """A log that counts the calls of each name."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._log, name)


def test_the_requests_of_a_plan_grow_with_its_windows_and_not_with_the_partitions(log: Log) -> None:
    counted = CountedLog(log)
    start = first_offset(log)
    after = Planner(cast(Log, counted), build_options(log, Places()), BatchLimits()).next(start)
    moved_ms = [now.emitted_through_ms - was.emitted_through_ms for was, now in both_progress(start, after)]
    windows = max(moved_ms) // DEMO.window_ms
    assert windows >= 7
    # The begin of the last minute, the decision offset before the first window, and two for each window.
    assert counted.calls["offsets_for_times"] <= 2 + 2 * windows


def both_progress(before: PipelineOffset, after: PipelineOffset) -> Iterator[tuple[Progress, Progress]]:
    return zip(before.progress.values(), after.progress.values(), strict=True)


def test_an_idle_plan_is_one_request_until_a_record_begins_another_minute(log: Log) -> None:
    counted = CountedLog(log)
    planner = Planner(cast(Log, counted), build_options(log, Places()), BatchLimits())
    planned = planner.next(first_offset(log))
    assert planner.next(planned) is planned
    counted.calls.clear()
    log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=RECORDED.end_ms)
    assert planner.next(planned) is planned
    assert counted.calls == {"topic_id": 1, "offsets_for_times": 1}
    log.append_sync(METRICS, 1, encode_tick(), timestamp_ms=RECORDED.end_ms + 2 * DEMO.late_minute_ms)
    after = planner.next(planned)
    assert [now.position > was.position for was, now in both_progress(planned, after)] == [False, True]


def test_plans_for_another_incarnation_of_the_log_are_refused(log: Log) -> None:
    options = build_options(log, Places())
    other = Planner(log, type(options)(Places(), "another", options.times, options.slices), LIMITS)
    with pytest.raises(WrongTopic, match="made anew"):
        other.next(first_offset(log))


def test_a_rebuild_builds_the_records_that_the_stage_wrote(log: Log) -> None:
    start_ms = BASE_MS - BASE_MS % DEMO.window_ms + DEMO.window_ms
    windows = range_of(start_ms, start_ms + 3 * DEMO.window_ms, DEMO.window_ms)
    planned = list(items_of(log, plan_partitions(log, windows, DEMO), windows, DEMO))
    assert any(isinstance(item, LateItem) for item in planned)
    for partition in range(PARTITIONS):
        want = {
            (key, value)
            for key, value in uninterrupted(log, partition, DEMO)
            if isinstance(decoded := decode_key(key), ChunkKey | WindowKey)
            and windows.start_ms <= decoded.window_start_ms < windows.end_ms
        }
        assert built(log, planned, partition) == want


def test_a_rebuild_of_windows_that_are_open_is_refused(log: Log) -> None:
    end_ms = RECORDED.end_ms - RECORDED.end_ms % DEMO.window_ms + DEMO.window_ms
    with pytest.raises(InvalidRequest, match="too recent in 2 partition") as refused:
        plan_partitions(log, range_of(end_ms - DEMO.window_ms, end_ms, DEMO.window_ms), DEMO)
    assert refused.value.reason == "too_recent"


def test_a_rebuild_of_trimmed_windows_is_refused_with_the_first_possible_time(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path / 'trimmed.db'}", "") as logs:
        admin = logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        log = logs.open(clock=still(RECORDED.end_ms))
        RECORDED.write(log)
        admin.trim(METRICS, {1: 10})
        start_ms = BASE_MS - BASE_MS % DEMO.window_ms
        windows = range_of(start_ms, start_ms + 2 * DEMO.window_ms, DEMO.window_ms)
        with pytest.raises(LostOffsets, match="windows from 1700000040000 ms on") as refused:
            plan_partitions(log, windows, DEMO)
        assert refused.value.reason == "before_retention"
        with pytest.raises(LostOffsets, match="the log begins at offset 10"):
            list(
                build(
                    BaseItem(1, start_ms, start_ms + DEMO.window_ms), log, build_options(log, Places()), SystemClock()
                )
            )
        with pytest.raises(LostOffsets, match="offset 0 is not in the log"):
            list(build(LateItem(1, 0, 50), log, build_options(log, Places()), SystemClock()))


def test_a_window_is_not_built_of_a_log_that_was_trimmed_into_a_gap_of_offsets(tmp_path: Path) -> None:
    start_ms = BASE_MS - BASE_MS % DEMO.window_ms
    item = BaseItem(0, start_ms, start_ms + DEMO.window_ms)
    with LogFactory(f"sqlite:///{tmp_path / 'gaps.db'}", "") as logs:
        admin = logs.create(1, timestamp_type=CREATE_TIME)
        # Each record lies behind a gap; only those from the second on are of the window.
        log = SqliteLog(tmp_path / "gaps.db", "", LogSettings(), still(BASE_MS), FaultPlan(gap_share=1.0, gap_max=3))
        with log:
            offsets = [
                log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=start_ms + at).offset
                for at in (-DEMO.ahead_ms, 0, DEMO.window_ms + DEMO.grace_ms)
            ]
            assert offsets[1] > offsets[0] + 1
            options = build_options(log, Places())
            assert len(list(build(item, log, options, SystemClock()))) == 1, "whole: an empty window has its marker"
            admin.trim(METRICS, {0: offsets[0] + 1})
            low = log.watermarks(METRICS, [0])[0].low
            assert low == offsets[0] + 1 < offsets[1], "the low watermark lies in the gap"
            with pytest.raises(LostOffsets, match=f"the log begins at offset {low}") as refused:
                list(build(item, log, options, SystemClock()))
            assert refused.value.reason == "chunk_gap"


def test_a_window_of_a_log_that_begins_just_before_it_is_built_once_and_never_again(tmp_path: Path) -> None:
    """The Python chunker's rule of tests/unit/tsdb/chunks/test_resume.py."""
    start_ms = BASE_MS - BASE_MS % DEMO.window_ms
    item = BaseItem(0, start_ms, start_ms + DEMO.window_ms)
    with LogFactory(f"sqlite:///{tmp_path / 'near.db'}", "") as logs:
        admin = logs.create(1, timestamp_type=CREATE_TIME)
        log = logs.open(clock=still(BASE_MS))
        times = (-3 * DEMO.ahead_ms, -DEMO.ahead_ms - 1, 0, DEMO.window_ms + DEMO.grace_ms)
        for at in times:
            log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=start_ms + at)
        admin.trim(METRICS, {0: 1})
        options = build_options(log, Places())
        hole, marker = build(item, log, options, SystemClock())
        assert isinstance(decode_key(marker.key), WindowKey)
        assert decode_key(hole.key) == HoleKey(0, start_ms, start_ms + DEMO.ahead_ms - 1, 1)
        with pytest.raises(LostOffsets, match="the log begins at offset 1") as refused:
            list(build(replace(item, again=True), log, options, SystemClock()))
        assert refused.value.reason == "chunk_gap"
        admin.trim(METRICS, {0: 2})
        with pytest.raises(LostOffsets, match="the log begins at offset 2"):
            list(build(item, log, options, SystemClock()))

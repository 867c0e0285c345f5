"""Take-over without a commit: progress markers have the stage's position and the first whole window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chunker.repair import diagnose, repair
from chunker.takeover import highest_marker, take_over
from support.servers.logs import LogFactory
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import encode_progress_marker
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import CHUNKS, METRICS, Log, Position
from tsdb.log.lone_member import IdleListener
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import FaultPlan
from tsdb.log.sqlite.log import SqliteLog
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import ManualClock
from tsdb.model.time_set import DEMO

BASE_MS = 1_700_000_010_000  # The start of a window.
MINUTES = 100


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as factory:
        factory.create(1, timestamp_type=CREATE_TIME)
        yield factory


@pytest.fixture
def log(logs: LogFactory) -> Log:
    made = logs.open()
    for minute in range(MINUTES):
        made.append_sync(METRICS, 0, encode_tick(), timestamp_ms=BASE_MS + minute * DEMO.late_minute_ms)
    return made


def write(log: Log, progress: Progress, topic_id: str = "") -> None:
    value = encode_progress_marker(progress.marker(topic_id or log.topic_id(METRICS), 0))
    log.append_sync(CHUNKS, 0, value, key=encode_key(ProgressKey()))


def test_of_several_markers_of_this_log_the_highest_of_each_number_counts(log: Log) -> None:
    for position, emitted_through_ms in ((10, 0), (30, 1_000), (30, 2_000), (20, 1_500)):
        write(log, Progress(position, emitted_through_ms))
    write(log, Progress(90, 9_000), "another log")
    assert together(log) == (30, 2_000)
    # The stage that took over emitted a window before late samples that its predecessor had emitted already.
    write(log, Progress(20, 3_000))
    assert together(log) == (30, 3_000)


def together(log: Log) -> tuple[int, int]:
    marker = highest_marker(log, 0, log.topic_id(METRICS))
    assert marker is not None
    return marker.position, marker.emitted_through_ms


def test_without_its_commit_a_stage_still_skips_windows_that_the_log_never_had_whole(
    logs: LogFactory, log: Log
) -> None:
    logs.topics().trim(METRICS, {0: 7})
    clock = ManualClock(BASE_MS + MINUTES * DEMO.late_minute_ms)
    first = take_over(log, 0, None, DEMO, clock)
    assert first.case == "first"
    assert first.progress.whole_from_ms > first.progress.emitted_through_ms
    write(log, first.progress)
    again = take_over(log, 0, None, DEMO, clock)
    assert (again.case, again.progress) == ("marker", first.progress)


def test_a_partition_trimmed_into_the_offsets_behind_its_last_record_gets_a_record(
    tmp_path: Path, logs: LogFactory
) -> None:
    clock = ManualClock(BASE_MS)
    with SqliteLog(tmp_path / "log.db", "", LogSettings(), clock, FaultPlan(gap_share=1.0)) as log:
        last = log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=BASE_MS - 3 * DEMO.window_ms).offset
        commit = Position(last, encode_progress(Progress(last, BASE_MS - 4 * DEMO.window_ms), log.topic_id(METRICS)))
        with log.group(GROUP_ID) as group:
            group.join([METRICS], IdleListener(log))
            group.poll(0.0, max_records=1)
            group.commit({(METRICS, 0): commit})
        logs.topics().trim(METRICS, {0: last + 1})
        marks = log.watermarks(METRICS, [0])[0]
        assert marks.low == last + 1 < marks.high, "no record is retained"

        problem = diagnose(log, 0, commit, DEMO)
        assert problem is not None
        progress = repair(log, log.group(GROUP_ID), [problem], DEMO, clock)[0]
        assert progress.position == marks.low
        assert progress.whole_from_ms > BASE_MS
        repaired = Position(progress.position, encode_progress(progress, log.topic_id(METRICS)))
        assert take_over(log, 0, repaired, DEMO, clock).next_offset >= marks.low


def test_a_first_start_on_a_partition_without_a_retained_record_begins_now(tmp_path: Path, logs: LogFactory) -> None:
    clock = ManualClock(BASE_MS)
    with SqliteLog(tmp_path / "log.db", "", LogSettings(), clock, FaultPlan(gap_share=1.0)) as log:
        last = log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=BASE_MS - DEMO.window_ms).offset
        logs.topics().trim(METRICS, {0: last + 1})
        first = take_over(log, 0, None, DEMO, clock)
        assert (first.case, first.progress.position) == ("first", last + 1)

"""A chunker over the embedded log writes what follows from the log, ticks included, and resumes at its commit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.data.late_writer import LateWriter
from support.drills.chunk_kills import kill_chunker
from support.drills.chunk_reruns import assert_reruns_equal, empty_logs
from support.servers.chunkers import FastClock, assert_uninterrupted, chunker_options, running, wait_emitted, windows_in
from support.servers.logs import LogFactory
from tsdb.log.interface import METRICS
from tsdb.model.time_set import DEMO

BASE_MS = 1_700_000_000_000
SPEED = 40.0
PARTITIONS = 2


@pytest.fixture
def logs(tmp_path: Path) -> LogFactory:
    return LogFactory(f"sqlite:///{tmp_path / 'log.sqlite'}", "")


def test_windows_late_minutes_and_ticks_end_up_in_chunks(logs: LogFactory) -> None:
    with logs:
        logs.create(PARTITIONS)
        clock = FastClock(BASE_MS, SPEED)
        log = logs.open(clock=clock)
        with running(log, chunker_options(), clock) as chunker:
            with LateWriter(log, PARTITIONS, clock, DEMO.window_ms, seed=1):
                time.sleep(3.0)  # Two minutes of the log.
            last_ms = clock.now_ms()
            wait_emitted(chunker, range(PARTITIONS), last_ms + 2 * DEMO.window_ms)
        for partition in range(PARTITIONS):
            written = assert_uninterrupted(log, partition, DEMO)
            assert len(windows_in(written)) >= 4
            assert log.watermarks(METRICS, [partition])[partition].high > 100


def test_three_drills_of_10_kills_at_random_instants_leave_the_same_chunks(logs: LogFactory, tmp_path: Path) -> None:
    with logs:
        logs.create(PARTITIONS)
        clock = FastClock(BASE_MS, SPEED)
        log = logs.open(clock=clock)
        kill_chunker(log, PARTITIONS, clock, kills=10, seed=201)
        others = [LogFactory(f"sqlite:///{tmp_path}/again-{number}.db", "") for number in range(2)]
        with empty_logs(others, PARTITIONS, clock) as again:
            assert_reruns_equal(log, again, PARTITIONS, clock, kills=10, seed=203)

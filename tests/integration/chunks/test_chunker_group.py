"""Chunkers that share the log: partitions change hands in the middle of a window, and `chunks` does not show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chunker.chunker import Chunker
from support.data.late_writer import LateWriter
from support.drills.chunk_kills import kill_process
from support.servers.chunkers import FastClock, assert_uninterrupted, chunker_options, running, wait_emitted, windows_in
from support.servers.logs import LogFactory, wait_until
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME
from tsdb.model.time_set import DEMO

BASE_MS = 1_700_000_000_000
SPEED = 20.0
PARTITIONS = 3
SLOWLY = replace(DEMO, spread_ms=25_000)  # Most of the time some window is in the middle of its emission.
SETTINGS = LogSettings(group_session_s=6.5)


def in_mid_emission(chunker: Chunker) -> bool:
    return any(status.windows_waiting for status in chunker.statuses())


def test_a_rebalance_in_mid_emission_leaves_the_same_chunks(log_factory: LogFactory) -> None:
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    clock = FastClock(BASE_MS, SPEED)
    log = log_factory.open(SETTINGS, clock)
    with LateWriter(log, PARTITIONS, clock, SLOWLY.window_ms, seed=5):
        with running(log, chunker_options(SLOWLY), clock) as first:
            wait_until(lambda: in_mid_emission(first))
            with running(log, chunker_options(SLOWLY), clock) as second:
                wait_until(lambda: in_mid_emission(first) and in_mid_emission(second))
        with running(log, chunker_options(SLOWLY), clock, graceful=False) as third:
            wait_until(lambda: in_mid_emission(third))
    with running(log, chunker_options(SLOWLY), clock) as last:
        wait_emitted(last, range(PARTITIONS), clock.now_ms() + SLOWLY.window_ms)
    for partition in range(PARTITIONS):
        assert len(windows_in(assert_uninterrupted(log, partition, SLOWLY))) >= 2


@pytest.mark.parametrize("log_factory", ["kafka"], indirect=True)
def test_chunks_are_the_same_after_processes_killed_on_kafka(log_factory: LogFactory) -> None:
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    kill_process(log_factory, PARTITIONS, FastClock(BASE_MS, SPEED), kills=2, seed=202)

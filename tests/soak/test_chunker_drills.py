"""Attacks the promise that no commit passes unfinished work: a hundred kills of the chunk stage, twenty on Kafka."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from support.drills.chunk_kills import kill_chunker, kill_process
from support.drills.chunk_reruns import assert_reruns_equal, empty_logs
from support.servers.chunkers import FastClock
from support.servers.logs import LogFactory
from support.shared_servers import SharedBroker
from tsdb.log.topics import CREATE_TIME

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

BASE_MS = 1_700_000_000_000
PARTITIONS = 3
RERUNS = 2  # The recorded drill is one of three runs.


def test_three_drills_of_100_kills_at_random_instants_leave_the_same_chunks(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        logs.create(PARTITIONS)
        clock = FastClock(BASE_MS, speed=40.0)
        log = logs.open(clock=clock)
        kill_chunker(log, PARTITIONS, clock, kills=100, seed=301)
        others = [LogFactory(f"sqlite:///{tmp_path}/again-{number}.db", "") for number in range(RERUNS)]
        with empty_logs(others, PARTITIONS, clock) as again:
            assert_reruns_equal(log, again, PARTITIONS, clock, kills=100, seed=303)


def test_20_processes_killed_on_kafka_and_two_reruns_leave_the_same_chunks(kafka: SharedBroker) -> None:
    with on_broker(kafka) as logs:
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        clock = FastClock(BASE_MS, speed=10.0)
        log = kill_process(logs, PARTITIONS, clock, kills=20, seed=302)
        with empty_logs([on_broker(kafka) for _ in range(RERUNS)], PARTITIONS, clock) as again:
            assert_reruns_equal(log, again, PARTITIONS, clock, kills=20, seed=304)


def on_broker(kafka: SharedBroker) -> LogFactory:
    """A log with separate topics for each test."""
    return LogFactory(f"kafka://{kafka.bootstrap}", f"k{uuid.uuid4().hex[:12]}.")

"""Attacks the promise that no commit passes unfinished work: a hundred kills of the chunk stage, twenty on Kafka."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.chunk_kills import kill_chunker, kill_process
from support.chunkers import FastClock
from support.logs import LogFactory
from tsdb.log.topics import CREATE_TIME

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

BASE_MS = 1_700_000_000_000
PARTITIONS = 3


def test_chunks_are_the_same_after_kills_at_100_random_instants(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        logs.create(PARTITIONS)
        clock = FastClock(BASE_MS, speed=40.0)
        kill_chunker(logs.open(clock=clock), PARTITIONS, clock, kills=100, seed=301)


def test_chunks_are_the_same_after_20_processes_killed_on_kafka(kafka: KafkaCluster) -> None:
    with LogFactory(f"kafka://{kafka.bootstrap}", f"k{uuid.uuid4().hex[:12]}.") as logs:
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        kill_process(logs, PARTITIONS, FastClock(BASE_MS, speed=10.0), kills=20, seed=302)

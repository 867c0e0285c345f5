"""Causes that stop one partition of the chunk stage while the others continue, and the chunker's state meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chunker.chunker import Chunker
from support.data.late_writer import announce_all
from support.fakes.replay_log import encoded, of_newer_version
from support.servers.chunkers import FastClock, chunker_options, running, wait_emitted
from support.servers.logs import LogFactory, wait_until
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.codec.chunk.key import HoleKey, decode_key
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import CHUNKS, METRICS, Log, Position
from tsdb.log.lone_member import IdleListener
from tsdb.log.records import read_to_end
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import ManualClock
from tsdb.model.time_set import DEMO

BASE_MS = 1_700_000_010_000 // DEMO.window_ms * DEMO.window_ms
NOW_MS = BASE_MS + 70_000


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as factory:
        factory.create(2, timestamp_type=CREATE_TIME)
        yield factory


@pytest.fixture
def log(logs: LogFactory) -> Log:
    """Two partitions with two windows of samples."""
    log = logs.open(clock=ManualClock(BASE_MS))
    for partition in range(2):
        announce_all(log, partition, BASE_MS)
        for second in range(0, 60, 10):
            put(log, partition, encoded((0, BASE_MS + second * 1000, 1.0)), second)
    return log


def put(log: Log, partition: int, value: bytes, second: float) -> None:
    log.append_sync(METRICS, partition, value, timestamp_ms=BASE_MS + round(second * 1000))


def commit(log: Log, positions: dict[int, Position]) -> None:
    with log.group(GROUP_ID) as group:
        group.join([METRICS], IdleListener(log))
        while len(group.assigned()) < 2:
            group.poll(0.05)
        group.commit({(METRICS, partition): position for partition, position in positions.items()})


def wait_stopped(chunker: Chunker, partition: int, reason: str) -> None:
    """Wait until one partition has stopped with this reason and the other one has emitted both windows."""

    def stopped() -> bool:
        return any((s.partition, s.readiness.reason) == (partition, reason) for s in chunker.statuses())

    wait_until(stopped)
    health = chunker.health()[partition]
    assert not health.ready
    assert health.details["message"]
    wait_emitted(chunker, [1 - partition], BASE_MS + 60_000)
    assert chunker.stalled() == ""
    assert chunker.failure() is None


def test_a_record_of_a_newer_version_stops_its_partition_alone(log: Log) -> None:
    put(log, 0, of_newer_version(encoded((0, BASE_MS, 1.0))), 61)
    with running(log, chunker_options(), FastClock(NOW_MS, 1.0)) as chunker:
        wait_stopped(chunker, 0, "unknown_version")


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (encode_progress(Progress(1, BASE_MS), "another-log"), "commit_topic"),
        ("1 broken", "commit_corrupt"),
        ("9 x 1 1 00000000", "commit_corrupt"),
    ],
)
def test_a_commit_that_cannot_be_used_stops_its_partition_alone(log: Log, metadata: str, reason: str) -> None:
    commit(log, {1: Position(1, metadata)})
    with running(log, chunker_options(), FastClock(NOW_MS, 1.0)) as chunker:
        wait_stopped(chunker, 1, reason)
    assert not list(read_to_end(log, CHUNKS, 1)), "it wrote nothing"


def test_a_log_trimmed_past_what_must_be_read_stops_its_partition_and_names_the_interval(
    logs: LogFactory, log: Log
) -> None:
    commit(log, {0: Position(1, encode_progress(Progress(1, BASE_MS), log.topic_id(METRICS)))})
    logs.topics().trim(METRICS, {0: 3})
    with running(log, chunker_options(), FastClock(NOW_MS, 1.0)) as chunker:
        wait_stopped(chunker, 0, "chunk_gap")
        message = str(chunker.health()[0].details["message"])
        assert str(BASE_MS - DEMO.accept_past_ms) in message
        assert "--accept-gap" in message


def test_a_commit_beyond_the_end_of_the_log_stops_its_partition(log: Log) -> None:
    end = log.watermarks(METRICS, [0])[0].high
    commit(log, {0: Position(end + 5, encode_progress(Progress(end + 5, BASE_MS), log.topic_id(METRICS)))})
    with running(log, chunker_options(), FastClock(NOW_MS, 1.0)) as chunker:
        wait_stopped(chunker, 0, "offset_above_end")


def test_a_first_start_on_a_trimmed_log_writes_the_hole_first_and_goes_on(logs: LogFactory, log: Log) -> None:
    logs.topics().trim(METRICS, {0: 2})
    clock = FastClock(NOW_MS, 1.0)
    for _ in range(2):  # The second one finds the first one's commit.
        with running(log, chunker_options(), clock) as chunker:
            wait_emitted(chunker, range(2), BASE_MS + 60_000)
    keys = [decode_key(record.key or b"") for record in read_to_end(log, CHUNKS, 0)]
    assert isinstance(keys[0], HoleKey)
    assert keys[0].end_ms == BASE_MS + 30_000
    assert keys.count(keys[0]) == 1


def test_an_empty_partition_gets_a_tick_and_a_chunker_drains_at_once(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path / 'empty.db'}", "") as factory:
        factory.create(1)
        clock = FastClock(BASE_MS, 1.0)
        log = factory.open(clock=clock)
        with running(log, chunker_options(), clock) as chunker:
            wait_until(lambda: any(status.readiness.ready for status in chunker.statuses()))
        (first, *_) = read_to_end(log, METRICS, 0)
        assert first.value == encode_tick()

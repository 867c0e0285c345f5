"""Loaders over a real broker: two of them share and change, one is killed, the broker stops; history holds it all."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
from support.data.chunk_topics import Expected, append_entries, staged
from support.fakes.fake_chunk_store import FakeChunkStore
from support.servers.histories import HistoryFactory
from support.servers.loaders import OPTIONS, assert_holds, is_loaded, run_and_kill
from support.servers.logs import LogFactory, wait_until
from support.shared_servers import SharedBroker
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock

PARTITIONS = 4


@pytest.fixture
def factory(kafka: SharedBroker) -> Iterator[LogFactory]:
    with LogFactory(f"kafka://{kafka.bootstrap}", f"t{uuid.uuid4().hex[:12]}.") as factory:
        factory.create(partitions=PARTITIONS)
        yield factory


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChunkStore]:
    with HistoryFactory(f"sqlite:///{tmp_path}/history.db") as factory:
        factory.create()
        yield factory.open()


def filled(log: Log, windows: int, packs: int, seed: int = 1, first_window: int = 0) -> Expected:
    topic_id = log.topic_id(METRICS)
    entries, expected = staged(topic_id, PARTITIONS, windows, packs, seed, first_window=first_window)
    append_entries(log, entries)
    return expected


def ended(loader: Loader) -> None:
    loader.close()
    assert loader.join(30.0)


def test_two_loaders_share_and_series_follow_their_chunks(factory: LogFactory, store: ChunkStore) -> None:
    log = factory.open()
    first = Loader(log, store, OPTIONS, SystemClock(), seed=1)
    second = Loader(factory.open(), store, OPTIONS, SystemClock(), seed=2)
    first.start()
    wait_until(lambda: len(first.health()) == PARTITIONS)
    second.start()
    wait_until(lambda: len(first.health()) == len(second.health()) == PARTITIONS // 2)
    assert all({"chunks_position", "series_position"} <= set(one.details) for one in first.health().values())
    expected = filled(log, windows=8, packs=6)
    wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
    ended(second)
    wait_until(lambda: len(first.health()) == PARTITIONS)
    more = expected.later(filled(log, windows=4, packs=6, first_window=8))
    wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == more.loaded)
    ended(first)
    assert_holds(store, log, more)


def test_a_loader_that_is_killed_loses_nothing(factory: LogFactory, store: ChunkStore) -> None:
    log, source = factory.open(), random.Random(3)
    expected = filled(log, windows=10, packs=8, seed=3)
    struck = sum(run_and_kill(factory.open(), store, source.randrange(1, 80)) for _ in range(4))
    assert struck >= 2, "most kills must find the loader at work"
    loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)
    loader.start()
    wait_until(lambda: is_loaded(log) and store.loaded(log.topic_id(METRICS)) == expected.loaded)
    ended(loader)
    assert_holds(store, log, expected)


@pytest.mark.soak  # In each run tests/fault/test_kafka_outage.py holds that loaders go on after an outage.
def test_a_broker_that_stops_is_waited_for(broker: KafkaCluster) -> None:
    with LogFactory(f"kafka://{broker.bootstrap}", f"t{uuid.uuid4().hex[:12]}.") as factory:
        factory.create(partitions=PARTITIONS)
        log, store = factory.open(), FakeChunkStore()
        expected = filled(log, windows=4, packs=4)
        store.held = True
        loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)
        loader.start()
        wait_until(lambda: len(store.writes) > 20)
        broker.stop_broker(0)
        store.release()
        # Either error may come first from the client library; a member whose session has ended meanwhile joins the
        # group again.
        wait_until(lambda: loader.problem()[0] in ("commit_failing", "log_unavailable", "joining"))
        broker.start_broker(0)
        wait_until(lambda: is_loaded(log), 60.0)
        wait_until(lambda: not loader.problem()[0] and all(one.ready for one in loader.health().values()))
        wait_until(lambda: store.loaded(log.topic_id(METRICS)) == expected.loaded)
        ended(loader)
        assert store.rows == expected.rows

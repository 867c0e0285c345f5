"""Loaders killed at a hundred random instants over the embedded log: all samples covered by `loaded` are there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.data.chunk_topics import append_entries, staged
from support.servers.histories import HistoryFactory
from support.servers.loaders import OPTIONS, assert_holds, is_loaded, run_and_kill
from support.servers.logs import LogFactory, wait_until
from tsdb.history.loader.loader import Loader
from tsdb.log.interface import METRICS
from tsdb.model.clock import SystemClock

pytestmark = pytest.mark.soak

PARTITIONS = 3
KILLS = 100
GROWS_EVERY = 10


@pytest.mark.timeout(3_600)
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    source, struck = random.Random(1), 0
    with (
        LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs,
        HistoryFactory(f"sqlite:///{tmp_path}/history.db") as histories,
    ):
        logs.create(partitions=PARTITIONS)
        histories.create()
        log, store = logs.open(), histories.open()
        topic_id = log.topic_id(METRICS)
        entries, expected = staged(topic_id, PARTITIONS, 10, 12, 1)
        append_entries(log, entries)
        for kill in range(KILLS):
            struck += run_and_kill(log, store, source.randrange(1, 120))
            if kill % GROWS_EVERY == GROWS_EVERY - 1:
                entries, more = staged(topic_id, PARTITIONS, 10, 12, kill, first_window=kill + 1)
                append_entries(log, entries)
                expected = expected.later(more)
        assert struck >= KILLS // 4, "kills must find the loader at work"
        loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)
        loader.start()
        wait_until(lambda: is_loaded(log) and store.loaded(topic_id) == expected.loaded, 300.0)
        loader.close()
        assert loader.join(30.0)
        assert_holds(store, log, expected)

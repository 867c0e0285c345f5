"""A running loader notices that history was emptied or replaced, embedded and on real servers alike."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.data.chunk_topics import Expected, append_entries, staged
from support.servers.histories import HistoryFactory, written
from support.servers.loaders import OPTIONS, assert_holds
from support.servers.logs import LogFactory, wait_until
from support.shared_servers import contract_history
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import CHUNKS_TRIMMED, SERIES_TRIMMED, Loader
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log
from tsdb.log.records import first_records
from tsdb.model.clock import SystemClock
from tsdb.model.window import LONG_AGO_MS

PARTITIONS, WINDOWS, PACKS = 3, 4, 4
ENDS_WITHIN_S = 20.0


@dataclass(frozen=True)
class Ground:
    """A log with its topics, and an empty history."""

    logs: LogFactory
    histories: HistoryFactory


@pytest.fixture(params=["embedded", "servers"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    if request.param == "embedded":
        log_url, history_url = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    else:
        broker, node = request.getfixturevalue("kafka"), request.getfixturevalue("cassandra")
        log_url, history_url = f"kafka://{broker.bootstrap}", contract_history(node)
    with LogFactory(log_url, f"t{uuid.uuid4().hex[:12]}.") as logs, HistoryFactory(history_url) as histories:
        logs.create(PARTITIONS)
        histories.create()
        yield Ground(logs, histories)


@contextmanager
def running(log: Log, store: ChunkStore) -> Iterator[Loader]:
    loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)
    loader.start()
    try:
        yield loader
    finally:
        loader.close()
        assert loader.join(ENDS_WITHIN_S), "the loader did not end"


def append_windows(log: Log, first_window: int = 0) -> Expected:
    entries, expected = staged(
        log.topic_id(METRICS), PARTITIONS, WINDOWS, PACKS, seed=first_window, first_window=first_window
    )
    append_entries(log, entries)
    return expected


@pytest.mark.parametrize("replaced", [False, True], ids=["emptied", "replaced by an older copy"])
def test_a_history_that_is_emptied_under_a_running_loader_is_loaded_from_zero(ground: Ground, replaced: bool) -> None:
    log, store = ground.logs.open(), ground.histories.open()
    topic_id = log.topic_id(METRICS)
    first = append_windows(log)
    with running(log, store):
        wait_until(lambda: store.loaded(topic_id) == first.loaded)
        ground.histories.empty()
        for number in range(PARTITIONS) if replaced else ():
            older = Loaded(topic_id, number, first.loaded[number].position - 1, 0)
            written(lambda done, older=older: store.write_loaded(older, done))  # type: ignore[misc]
        later = append_windows(log, WINDOWS)
        wait_until(lambda: store.loaded(topic_id) == later.loaded)
    assert_holds(store, log, first.later(later))


def test_a_start_from_zero_on_trimmed_topics_names_what_it_can_no_longer_bring(ground: Ground) -> None:
    log, store = ground.logs.open(), ground.histories.open()
    expected = append_windows(log)
    lows = {CHUNKS: (0, 5), SERIES: (1, 3)}
    ends_ms = {}
    for topic, (partition, low) in lows.items():
        ground.logs.topics().trim(topic, {partition: low})
        record = first_records(log, topic, {partition: low})[partition]
        assert record is not None
        ends_ms[topic] = record.broker_ms
    with running(log, store):
        wait_until(lambda: store.loaded(log.topic_id(METRICS)) == expected.loaded)
    holes = {
        (one.hole.partition, one.hole.reason): one.hole
        for one in store.holes(None, -(1 << 60), 1 << 60)
        if one.hole.reason in (CHUNKS_TRIMMED, SERIES_TRIMMED)
    }
    assert holes.keys() == {(0, CHUNKS_TRIMMED), (1, SERIES_TRIMMED)}
    chunks, series = holes[0, CHUNKS_TRIMMED], holes[1, SERIES_TRIMMED]
    assert (chunks.start_ms, chunks.end_ms, chunks.record_offset) == (LONG_AGO_MS, ends_ms[CHUNKS], 5)
    times = OPTIONS.time_set
    assert (series.end_ms, series.record_offset) == (ends_ms[SERIES] + times.window_ms + times.ahead_ms, 3)

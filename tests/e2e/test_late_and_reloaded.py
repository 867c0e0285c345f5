"""Attacks the promise that a late sample is never lost: it is in the next read, and in every read after.

Whether a loader runs or not, when memory has let it go, and when history was lost and made anew from compacted topics.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.data import recordings
from support.drills.history_drill import HistoryDrill
from support.oracles.history_contents import checksum_of_store
from support.servers.compaction import compact, make_compacting_topics
from support.servers.histories import HistoryFactory, truncate
from support.servers.logs import LogFactory
from support.servers.way import Way
from support.shared_servers import contract_history
from tsdb.history.interface import ChunkStore
from tsdb.log.interface import Log

PARTITIONS = 3
WINDOWS = 10
LOADED, DOWN = slice(0, 4), slice(4, 7)


@dataclass(frozen=True)
class Setup:
    """lost: empties history; later reads use the new one."""

    log: Log
    history: ChunkStore
    lost: Callable[[], ChunkStore]


@pytest.fixture(params=["embedded", "servers"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setup]:
    log_url, history_url = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    if request.param == "servers":
        node = request.getfixturevalue("cassandra")
        log_url = f"kafka://{request.getfixturevalue('kafka').bootstrap}"
        history_url = contract_history(node)
    another = HistoryFactory(f"sqlite:///{tmp_path}/another.db")
    with LogFactory(log_url, f"t{uuid.uuid4().hex[:12]}.") as logs, HistoryFactory(history_url) as histories, another:
        make_compacting_topics(logs, PARTITIONS)
        histories.create()

        def lost() -> ChunkStore:
            if not histories.is_cassandra:
                another.create()
                return another.open()
            truncate(history_url)
            return histories.open()  # A connection caches the metric names that it wrote.

        yield Setup(logs.open(), histories.open(), lost)


def test_late_samples_are_in_the_next_read_and_in_all_after(place: Setup) -> None:
    recording = recordings.node(WINDOWS, every=16)
    ends, rng = recording.window_ends, random.Random(52)
    with Way(place.log, place.history, recording, seed=51) as way:
        with HistoryDrill(way, rng) as drill:
            drill.run(ends[LOADED], outage=(), random_reads=0)
            drill.write_late(drill.healthy, "late, before load")
            way.load()
            drill.read_late(drill.healthy, "late, loaded")
            drill.write_late(drill.healthy, "late, after load")
            drill.run(ends[DOWN], outage=range(len(ends)), random_reads=0)
            drill.write_late(drill.outage, "late, loader down")
            way.load()
            drill.read_late(drill.healthy, "late, loaded again")
            drill.run(ends[DOWN.stop :], outage=(), random_reads=0)
            drill.read_evicted(ends, random_reads=20)
            drill.read_late(drill.healthy, "late, gone from memory")
            print(f"\n{drill.summary()}")
        sizes, held = compact(way.log, PARTITIONS), checksum_of_store(way.history)
        assert all(left < appended for appended, left in sizes.values())
        way.history = place.lost()
        with HistoryDrill(way, rng) as again:
            assert not again.outage.one("history lost", ends[0], ends[1], everything=True), "nothing is not an answer"
            way.load()
            assert checksum_of_store(way.history) == held
            again.read_evicted(ends, random_reads=40)
            print(f" compacted: {sizes}\n{again.summary()}")
        assert drill.healthy.share() == again.healthy.share() == 1.0
        assert way.dead_letters() == 0

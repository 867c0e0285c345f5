"""Attacks the promise that history, or its loader, may be away for as long as it takes.

Nothing becomes a dead letter, what waited is loaded afterwards, and meanwhile a read is refused only for what is in
neither memory nor history.
"""

from __future__ import annotations

import random
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from support import recordings
from support.histories import HistoryFactory
from support.killed_loaders import KilledLoaders
from support.logs import LogFactory
from support.past_drill import PastDrill
from support.way import Way
from tsdb.history.settings import HistorySettings
from tsdb.log.topics import CREATE_TIME

PARTITIONS = 3
IMPATIENT = HistorySettings(write_timeout_s=1.0, read_timeout_s=1.0)
LIFE_S_MAX = 1.0
HOUR_MS = 3600 * 1000


@pytest.fixture(scope="module")
def node() -> Iterator[CassandraNode]:
    with CassandraNode() as node:
        yield node


def stop(node: CassandraNode) -> Callable[[], None]:
    """SIGTERM; returns what brings it back."""
    node.process.stop()

    def mend() -> None:
        node.process.start()
        node.wait_ready()

    return mend


def suspend(node: CassandraNode) -> Callable[[], None]:
    """SIGSTOP: connections stay open and nothing answers."""
    node.process.signal(signal.SIGSTOP)
    return lambda: node.process.signal(signal.SIGCONT)


@pytest.mark.parametrize("strike", [stop, suspend])
def test_history_is_away_under_load_and_its_loaders_are_killed(
    kafka: KafkaCluster, node: CassandraNode, strike: Callable[[CassandraNode], Callable[[], None]]
) -> None:
    history_url = f"cassandra://{node.host}:{node.port}/outage"
    recording = recordings.node(windows=12, every=24)
    ends, rng = recording.window_ends, random.Random(61)
    with (
        LogFactory(f"kafka://{kafka.bootstrap}", f"t{uuid.uuid4().hex[:12]}.") as logs,
        HistoryFactory(history_url) as histories,
    ):
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        histories.create()
        with (
            Way(logs.open(), histories.open(IMPATIENT), recording, seed=62) as way,
            PastDrill(way, rng) as drill,
        ):
            with KilledLoaders(way, rng, life_s_max=LIFE_S_MAX) as loaders:
                drill.run(ends[:5], outage=range(5), random_reads=0)
                before, mend = loaders.kills, strike(node)
                try:
                    drill.run(ends[5:8], outage=range(3), random_reads=3)
                finally:
                    mend()
                during = loaders.kills - before
                drill.run(ends[8:], outage=range(len(ends)), random_reads=3)
            way.load()
            assert way.dead_letters() == 0
            drill.read_evicted(ends, random_reads=20)
            print(
                f"\n{strike.__name__}: {loaders.kills} kills, {during} while it was away; {loaders.written} statements"
            )
            print(drill.told())
            assert drill.healthy.share() == 1.0
            assert 0 < drill.outage.share() < 1.0, "memory answers, and history that is away does not"
            assert during > 0
            assert loaders.written > 0


@pytest.mark.parametrize("hold_h", [10, 22])
def test_no_loader_for_8_hours_refuses_only_what_is_truly_not_there(tmp_path: Path, hold_h: int) -> None:
    recording = recordings.long_node(windows=9, every=24)
    ends = recording.window_ends
    with (
        LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs,
        HistoryFactory(f"sqlite:///{tmp_path}/history.db") as histories,
    ):
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        histories.create()
        with (
            Way(logs.open(), histories.open(), recording, seed=63) as way,
            PastDrill(way, random.Random(64), hold_ms=hold_h * HOUR_MS) as drill,
        ):
            drill.run(ends, outage=range(5, 7), random_reads=3)
            drill.read_evicted(ends, random_reads=20)
            print(f"\nhold of {hold_h} h\n{drill.told()}")
            assert drill.healthy.share() == 1.0
            assert (drill.outage.share() == 1.0) == (hold_h == 22), "more hold buys more time"
            assert way.dead_letters() == 0

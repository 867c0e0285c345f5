"""Ways over a fresh log and history, and the drill of a history that is down while loaders die."""

from __future__ import annotations

import random
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stack.cassandra import CassandraNode
from support.data.recordings import Recording
from support.drills.history_drill import HistoryDrill
from support.drills.killed_loaders import KilledLoaders
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.servers.way import Way
from tsdb.history.settings import HistorySettings
from tsdb.log.topics import CREATE_TIME

PARTITIONS = 3
IMPATIENT = HistorySettings(write_timeout_s=1.0, read_timeout_s=1.0)
LIFE_S_MAX = 1.0
LOADED_WINDOWS = 5  # Windows before the outage of history. The first of them have left memory by then.

Strike = Callable[[CassandraNode], Callable[[], None]]


@contextmanager
def new_way(
    log_url: str,
    history_url: str,
    recording: Recording,
    *,
    seed: int,
    settings: HistorySettings | None = None,
    prefix: str | None = None,
) -> Iterator[Way]:
    """A way with new topics and an empty history. prefix: names of topics begin with it; None: any new one."""
    prefix = prefix or f"t{uuid.uuid4().hex[:12]}."
    with LogFactory(log_url, prefix) as logs, HistoryFactory(history_url) as histories:
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        histories.create()
        with Way(logs.open(), histories.open(settings), recording, seed) as way:
            yield way


def stop(node: CassandraNode) -> Callable[[], None]:
    """Stop the server with SIGTERM. Returns the function that starts it again."""
    node.process.stop()

    def mend() -> None:
        node.process.start()
        node.wait_ready()

    return mend


def suspend(node: CassandraNode) -> Callable[[], None]:
    """SIGSTOP: connections stay open and nothing answers."""
    node.process.signal(signal.SIGSTOP)
    return lambda: node.process.signal(signal.SIGCONT)


def history_away(bootstrap: str, node: CassandraNode, strike: Strike, recording: Recording, *, away: int) -> None:
    """Run windows, `away` of them without a history and with short-lived loaders; at the end all samples are loaded."""
    ends, rng = recording.window_ends, random.Random(61)
    gone, back = LOADED_WINDOWS, LOADED_WINDOWS + away
    history_url = f"cassandra://{node.host}:{node.port}/outage"
    with (
        new_way(f"kafka://{bootstrap}", history_url, recording, seed=62, settings=IMPATIENT) as way,
        HistoryDrill(way, rng) as drill,
    ):
        with KilledLoaders(way, rng, life_s_max=LIFE_S_MAX) as loaders:
            drill.run(ends[:gone], outage=range(gone), random_reads=0)
            loaders.wait_written()
            before, mend = loaders.kills, strike(node)
            try:
                drill.run(ends[gone:back], outage=range(away), random_reads=3)
                loaders.wait_kill(before)
            finally:
                mend()
            during = loaders.kills - before
            drill.run(ends[back:], outage=range(len(ends)), random_reads=3)
        way.load()
        assert way.dead_letters() == 0
        drill.read_evicted(ends, random_reads=20)
        print(f"\n{strike.__name__}: {loaders.kills} kills, {during} while it was away; {loaders.written} statements")
        print(drill.summary())
        assert drill.healthy.share() == 1.0
        assert 0 < drill.outage.share() < 1.0, "memory answers, and history that is away does not"
        assert during > 0
        assert loaders.written > 0

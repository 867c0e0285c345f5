"""Attacks the promise that history, or its loader, may be away for as long as it takes.

Nothing becomes a dead letter, what waited is loaded afterwards, and meanwhile a read is refused only for what is in
neither memory nor history.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stack.cassandra import CassandraNode
from support.data import recordings
from support.drills.history_drill import HistoryDrill
from support.servers.ways import Strike, history_away, new_way, stop, suspend
from support.shared_servers import SharedBroker

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize("strike", [pytest.param(stop, marks=pytest.mark.soak), suspend])
def test_history_is_away_under_load_and_its_loaders_are_killed(
    kafka: SharedBroker, node: CassandraNode, strike: Strike
) -> None:
    history_away(kafka.bootstrap, node, strike, recordings.node(windows=12, every=24), away=3)


@pytest.mark.parametrize("hold_h", [pytest.param(10, marks=pytest.mark.soak), 22])
def test_no_loader_for_8_hours_refuses_only_what_is_truly_not_there(tmp_path: Path, hold_h: int) -> None:
    recording = recordings.long_node(windows=9, every=24)
    ends = recording.window_ends
    urls = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    with (
        new_way(*urls, recording, seed=63) as way,
        HistoryDrill(way, random.Random(64), hold_ms=hold_h * HOUR_MS) as drill,
    ):
        drill.run(ends, outage=range(5, 7), random_reads=8)
        drill.read_evicted(ends, random_reads=20)
        print(f"\nhold of {hold_h} h\n{drill.summary()}")
        assert drill.healthy.share() == 1.0
        assert (drill.outage.share() == 1.0) == (hold_h == 22), "more hold buys more time"
        assert way.dead_letters() == 0

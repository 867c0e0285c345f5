"""Attacks the promise that a read is exact or an error: real data goes through log, memory, chunks and history, late,
twice and out of order, and is read at every edge of its windows at every stage. What is refused is truly not there."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import recordings
from support.histories import HistoryFactory
from support.logs import LogFactory
from support.past_drill import PastDrill
from support.recordings import CLOUD_1M, Recording
from support.way import Way

PARTITIONS = 3
WINDOWS = 22
OUTAGE = range(8, 12)  # Windows that close while no loader runs.
SHARE_MIN = 0.99
KINDS = ("node", "cloud") if CLOUD_1M.exists() else ("node",)
Open = Callable[[Recording], Way]


@pytest.fixture(params=["embedded", "servers"])
def open_way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Ways over a log and a history of one kind, both new."""
    log_url, history_url = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    if request.param == "servers":
        node = request.getfixturevalue("cassandra")
        log_url = f"kafka://{request.getfixturevalue('kafka').bootstrap}"
        history_url = f"cassandra://{node.host}:{node.port}/contract"
    with LogFactory(log_url, f"t{uuid.uuid4().hex[:12]}.") as logs, HistoryFactory(history_url) as histories:
        logs.create(PARTITIONS, timestamp_type="CreateTime")
        histories.create()
        yield lambda recording: Way(logs.open(), histories.open(), recording, seed=41)


@pytest.mark.parametrize("kind", KINDS)
def test_every_read_at_every_stage_equals_what_was_written(open_way: Open, kind: str) -> None:
    recording = recordings.node(WINDOWS, every=12) if kind == "node" else recordings.cloud(WINDOWS, every_minutes=4)
    assert len(recording.window_ends) >= 20
    with open_way(recording) as way, PastDrill(way, random.Random(42)) as drill:
        drill.run(recording.window_ends, outage=OUTAGE, random_reads=3)
        drill.read_evicted(recording.window_ends, random_reads=60)
        print(f"\n{kind}: {way.oracle.samples} samples in {len(recording.window_ends)} windows")
        print(drill.told())
        assert drill.healthy.share() >= SHARE_MIN
        assert min(drill.healthy.sources().values()) > 20, "each of memory, history and both answered"
        assert way.dead_letters() == 0

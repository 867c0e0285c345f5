"""Attacks the promise that a read is exact or an error: real data goes through log, memory, chunks and history, late,
twice and out of order, and is read at every edge of its windows at every stage. Refused data is truly missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.data import recordings
from support.data.recordings import CLOUD_1M
from support.drills.history_drill import read_at_every_stage
from support.servers.ways import new_way
from support.shared_servers import contract_history

WINDOWS = 22
KINDS = ("node", "cloud") if CLOUD_1M.exists() else ("node",)


# tests/fault/test_history_outage.py reads at these stages on real servers, a part of the time without their history.
PAIRS = [
    *(pytest.param("embedded", kind, marks=[pytest.mark.soak] if kind != KINDS[-1] else []) for kind in KINDS),
    *(pytest.param("servers", kind, marks=pytest.mark.soak) for kind in KINDS),
]


@pytest.mark.parametrize(("place", "kind"), PAIRS)
def test_every_read_at_every_stage_equals_what_was_written(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, kind: str
) -> None:
    log_url, history_url = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    if place == "servers":
        node = request.getfixturevalue("cassandra")
        log_url = f"kafka://{request.getfixturevalue('kafka').bootstrap}"
        history_url = contract_history(node)
    recording = recordings.node(WINDOWS, every=12) if kind == "node" else recordings.cloud(WINDOWS, every_minutes=4)
    assert len(recording.window_ends) >= 20
    with new_way(log_url, history_url, recording, seed=41) as way:
        read_at_every_stage(way, seed=42, random_reads=3, last_reads=60)

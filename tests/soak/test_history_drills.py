"""The long twins of the drills of reads over memory and history, all on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stack.cassandra import CassandraNode, NodeAccess
from support.data import recordings
from support.data.recordings import CLOUD_1M
from support.drills.history_drill import read_at_every_stage
from support.servers.ways import Strike, history_away, new_way, stop, suspend
from support.shared_servers import SharedBroker, contract_history

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

WINDOWS = 40
RANDOM_READS = 10  # Reads at each of four stages of each window.
KINDS = ("node", "cloud") if CLOUD_1M.exists() else ("node",)


@pytest.fixture(scope="module")
def node() -> Iterator[CassandraNode]:
    with CassandraNode() as node:
        yield node


@pytest.mark.parametrize("kind", KINDS)
def test_every_read_at_every_stage_equals_what_was_written(
    kafka: SharedBroker, cassandra: NodeAccess, kind: str
) -> None:
    recording = recordings.node(WINDOWS, every=2) if kind == "node" else recordings.cloud(WINDOWS, every_minutes=1)
    history_url = contract_history(cassandra)
    with new_way(f"kafka://{kafka.bootstrap}", history_url, recording, seed=401) as way:
        read_at_every_stage(way, seed=402, random_reads=RANDOM_READS, last_reads=500)


@pytest.mark.parametrize("strike", [stop, suspend])
def test_history_is_away_for_minutes_under_load_and_its_loaders_are_killed(
    kafka: SharedBroker, node: CassandraNode, strike: Strike
) -> None:
    history_away(kafka.bootstrap, node, strike, recordings.node(windows=60, every=8), away=30)

"""Attacks the promise that history comes back from a backup: the keyspace is dropped while samples flow.

Every role is a process, over a real broker and a real Cassandra node. Windows close before the backup, after it and
while history is lost. Every answer, RAW and PromQL, is byte for byte that of before, and no acknowledged sample is
missing at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.cassandra import CassandraNode
from support.backup.backup_drill import FlowingSamples, Installation, drop
from support.servers.deployments import create_topics
from support.servers.processes import run_tsdb, tsdb_json, tsdb_ok
from support.shared_servers import SharedBroker
from tsdb.model.errors import TsdbError
from tsdb.model.time_set import DEMO

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

WINDOW_MS = DEMO.window_ms
PARTITIONS = 3


@pytest.fixture
def node() -> Iterator[CassandraNode]:
    with CassandraNode() as running:
        yield running


def test_a_dropped_keyspace_comes_back_from_a_backup_while_samples_flow(
    kafka: SharedBroker, node: CassandraNode, tmp_path: Path
) -> None:
    log = create_topics(kafka.bootstrap, partitions=PARTITIONS, time_set=DEMO)
    history = f"cassandra://{node.host}:{node.port}/drill"
    places = (*log, "--time-set", "demo", "--history", history)
    make_history = ("history", "create", *log, "--history", history, "--replication", "1")
    tsdb_ok(*make_history)
    folder = str(tmp_path / "backup")
    with Installation(tmp_path, log, history) as roles, FlowingSamples(roles.roles["gateway"]) as samples:
        start_ms = (now_ms() // WINDOW_MS + 1) * WINDOW_MS
        old, newer = (start_ms, start_ms + 2 * WINDOW_MS), (start_ms, start_ms + 4 * WINDOW_MS)
        roles.wait_loaded(old[1])
        made = timed("backup", "history", "backup", folder, *places)
        roles.wait_loaded(newer[1])
        # Memory has dropped the old windows by then, so history answers for them.
        roles.wait_forgotten(old[1])
        before = roles.answers(*old), roles.answers(*newer)
        assert before[0].raw[2], "there are samples"
        assert roles.roles["loader"].terminate() == 0
        drop(history)
        with pytest.raises(TsdbError):
            roles.raw(*old)
        tsdb_ok(*make_history)
        dry = tsdb_json("history", "restore", folder, *places, "--dry-run")
        assert dry["backup_id"] == made["backup_id"]
        with pytest.raises(TsdbError):
            roles.raw(*old)
        restored = timed("restore", "history", "restore", folder, *places)
        assert {one["table"]: one["rows"] for one in restored["tables"]}["chunks"] > 0
        refused = run_tsdb("history", "restore", folder, *places)
        assert (refused.returncode, b"history is not empty" in refused.stderr) == (1, True)
        roles.roles["loader"].start()
        roles.wait_loaded(newer[1])
        after = roles.answers(*old), roles.answers(*newer)
        assert after == before
        last_ms = now_ms() // WINDOW_MS * WINDOW_MS
        roles.wait_loaded(last_ms)
        roles.wait_forgotten(newer[1])
        assert roles.answers(*newer) == before[1]
        want = {key: value for key, value in samples.acked.items() if start_ms <= key[1] < last_ms}
        assert roles.samples(start_ms, last_ms) == want
        metrics = roles.roles["loader"].metrics()
        loaded = metrics['tsdb_loader_records_total{kind="chunk"}']
        print(
            f"{len(want)} samples in {(last_ms - start_ms) // WINDOW_MS} windows;"
            f" {loaded:.0f} chunks loaded after the restore"
        )
        assert metrics['tsdb_loader_records_total{kind="progress_kept_back"}'] == 0, "no start from zero"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def timed(what: str, *arguments: str) -> Any:
    """The JSON of a command, and its time on stdout."""
    began = time.monotonic()
    done = tsdb_json(*arguments)
    rows = sum(one["rows"] for one in done["tables"])
    print(f"{what}: {rows} rows in {time.monotonic() - began:.1f} s, of that {done['seconds']:.1f} s in the command")
    return done

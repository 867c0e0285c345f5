"""Attacks the promise that each accepted sample is in the Iceberg table once: its process is killed around commits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.data.late_writes import LateWrites, commits, rows
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json
from tsdb.client import WriteBatch, connect
from tsdb.history.iceberg.catalog import TableSettings, create_table, open_catalog


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_each_sample_is_in_the_table_once_after_kills(tmp_path: Path, kills: int) -> None:
    writes = LateWrites(91)
    settings = TableSettings(f"sqlite:///{tmp_path}/tables.db")
    with open_catalog(settings) as catalog:
        assert create_table(catalog, settings.name, 2)
    arguments = ("--time-set", "demo", "--tables", settings.catalog, "--tables-commit-interval-s", "0.1")
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), *arguments) as role:
        for kill in range(kills):
            known = commits(settings)
            # Two writes, so that the second one's chunk comes while the first one's is committed.
            for _ in range(2):
                write(role, writes)
            # Kills come after the first new commit, and soon after it.
            wait_until(lambda known=known: commits(settings) > known)  # type: ignore[misc]
            time.sleep(writes.generator.random() * 0.3)  # The moment of the kill: in a read, in a commit, between them.
            role.kill()
            role.start()
            print(f"kill {kill}: {commits(settings)} commits, {len(writes.wanted())} samples")
        want = writes.wanted()
        wait_until(lambda: len(rows(settings)) >= len(want), describe=lambda: (len(rows(settings)), len(want)))
        write(role, writes)
        want = writes.wanted()
        wait_until(lambda: rows(settings) == want, describe=lambda: (len(rows(settings)), len(want)))
        checked = tsdb_json("tables", "check", "--tables", settings.catalog)
    assert checked["samples"] == len(want)
    assert checked["holes"] == 0


def write(role: Role, writes: LateWrites) -> None:
    """Write the next batch and wait for its answer."""
    batch = WriteBatch()
    for labels, ts_ms, values in writes.batch():
        batch.add(labels, ts_ms, values)
    with connect(role.grpc) as client:
        client.write(batch)

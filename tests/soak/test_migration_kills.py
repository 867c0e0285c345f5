"""A migration whose driver is killed five times, with JVM and workers, goes on by its job id each time.

The guarantee: the target has every row of the source, bit for bit, and no part is copied twice unless it was in flight
at a kill.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.history.history_growth import ROWS, write_block
from support.backup.backups import ground as backup_ground
from support.servers.histories import HistoryFactory
from support.servers.logs import wait_until
from support.spark.pipeline_process import DriverProcess
from tsdb.history.interface import ChunkStore
from tsdb.log.interface import META, Log
from tsdb.log.records import read_to_end

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

PACKS = 3_000
KILLS = 5
JOB = "move"
WITHIN_S = 600.0


def noted(log: Log) -> set[bytes]:
    """Parts that are noted as copied."""
    prefix = f"migration/{JOB}/".encode()
    found = {record.key: record.value for record in read_to_end(log, META, 0) if record.key}
    return {key for key, value in found.items() if key.startswith(prefix) and value and b"/plan/" not in key}


def rows(store: ChunkStore) -> dict[object, bytes]:
    pieces = (piece for split in store.row_splits(4) for piece in store.scan(split))
    return {row.key: row.value for piece in pieces for row in piece}


def test_a_migration_that_is_killed_copies_what_is_left_and_every_row(tmp_path: Path) -> None:
    urls = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db", f"sqlite:///{tmp_path}/to.db"
    with backup_ground(*urls[:2]) as ground, HistoryFactory(urls[2]) as target:
        target.create()
        source = ground.histories.open()
        ground.load(source, ground.append_windows())
        write_block(source, PACKS, 0)
        prefix = ground.logs.prefix

        def start() -> DriverProcess:
            arguments = (urls[0], prefix, *urls[1:], JOB, str(tmp_path / "scratch"))
            return DriverProcess(tmp_path, "support.spark.migrate_process", *arguments)

        output = tmp_path / "driver.log"
        parts = 22  # 16 of chunks, and the series of each of three names in two epochs.
        for kill in range(1, KILLS + 1):
            driver, enough = start(), kill * parts // (KILLS + 2)
            try:
                wait_until(lambda: not driver.running or len(noted(ground.log)) >= enough, WITHIN_S)  # noqa: B023
                assert driver.running, output.read_text()[-4000:]
            finally:
                driver.kill()
        before = noted(ground.log)
        driver = start()
        try:
            wait_until(lambda: not driver.running, WITHIN_S)
        finally:
            driver.kill()
        done = ast.literal_eval(output.read_text().splitlines()[-1])
        assert done["ok"], done
        assert (done["items"], done["items_before"]) == (parts, len(before))
        assert noted(ground.log) == set(), "a finished migration leaves no note"
        want = rows(source)
        assert len(want) > PACKS * ROWS
        assert rows(target.open()) == want

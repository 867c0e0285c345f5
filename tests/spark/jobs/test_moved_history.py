"""Jobs that copy history, on real workers: between SQLite and Cassandra and back, and into `chunks` before the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.building.plan import first_whole_ms
from spark_backfill.jobs.migrate.job import MigrateOptions, migrate
from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.places import Places
from spark_backfill.worker_log import close_worker_log
from support.backup.backups import PARTITIONS, Ground
from support.backup.backups import ground as backup_ground
from support.cli import Shell
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.shared_servers import contract_history
from support.spark.trimmed_log import RANGE, TrimmedGround, of_history, of_log
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import GROUP
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with backup_ground(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db") as made:
        yield made
        close_worker_log()


def everything(store: ChunkStore) -> tuple[object, ...]:
    """Chunks, series and holes."""
    pieces = (piece for split in store.row_splits(2) for piece in store.scan(split))
    chunks = {row.key: row.value for piece in pieces for row in piece}
    series = sorted(repr(row) for piece in store.scan_series() for row in piece)
    return chunks, series, store.holes(None, -(1 << 60), 1 << 60)


@pytest.mark.soak
def test_a_history_moves_to_cassandra_and_back_without_a_difference(
    spark: SparkSession, ground: Ground, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = ground.histories.open()
    first = ground.append_windows()
    ground.load(source, first)
    urls = [
        ground.histories.url,
        contract_history(request.getfixturevalue("cassandra")),
        f"sqlite:///{tmp_path}/back.db",
    ]
    for number, (begin, end) in enumerate(pairwise(urls)):
        with HistoryFactory(end) as target:
            target.create()
            places = Places(ground.logs.url, ground.logs.prefix, begin)
            meta = MetaSettings(partitions=PARTITIONS)
            done = migrate(spark, places, meta, MigrateOptions(end, GROUP, f"move-{number}"))
            assert done.ok, done
            assert done.compared == len(first.rows) + len(first.series)
            moved = target.open()
            # So that its loader's claims are there for the next move.
            ground.load(moved, first)
            assert everything(moved) == everything(source)


def test_the_command_copies_compares_and_names_its_job(
    spark: SparkSession,
    ground: Ground,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    shell = Shell(capsysbinary, monkeypatch)
    source = ground.histories.open()
    ground.load(source, ground.append_windows())
    to = f"sqlite:///{tmp_path}/to.db"
    log = ("--log", ground.logs.url, "--log-prefix", ground.logs.prefix)
    place = (*log, "--history", ground.histories.url, "--output", "json")
    refused = shell.run("spark", "migrate", "--to", to, *place)
    assert (refused.code, "`tsdb history create`" in refused.err) == (1, True), refused.err
    with HistoryFactory(to) as target:
        target.create()
        done = shell.ok("spark", "migrate", "--to", to, *place, "--job-id", "move")
        assert (done.json["ok"], done.json["job_id"], done.json["missing"]) == (True, "move", 0)
        assert "migrate: job id move; with --job-id an interrupted run is continued" in done.err
        assert everything(target.open()) == everything(source)
        again = shell.run("spark", "migrate", "--to", to, *place)
        assert (again.code, "(history_not_empty)" in again.err) == (1, True), again.err


def test_a_rebuild_reads_history_where_the_log_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    logs, histories = LogFactory(f"sqlite:///{tmp_path}/log.db", ""), HistoryFactory(f"sqlite:///{tmp_path}/h.db")
    with logs, histories:
        TrimmedGround.fill(logs, histories)
        ground = TrimmedGround(logs, histories)
        before, seam_ms = ground.ends(), first_whole_ms(ground.log, DEMO)
        done = rebuild(spark, ground.options, RANGE, job_id="month")
        assert ground.records(before) == of_history(ground.wanted, seam_ms) | of_log(ground.wanted, seam_ms)
        assert (done.ok, done.holes, done.history_chunks > 0, done.base_chunks > 0) == (True, 1, True, True)
        close_worker_log()

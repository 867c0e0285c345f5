"""Attacks the promise that what tasks write is the same however often they run: on a cluster of two hosts one task is
held up until Spark runs a second copy of it, and both write at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.session import SessionOptions, session
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.chunkers import inside, uninterrupted, written_to
from support.servers.logs import LogFactory
from support.spark.held_up import HELD_UP, HeldUpPlaces, attempts_of, has_met
from support.spark.pipelines import build_options, still
from support.spark.spark import CONF, places
from support.spark.spark_cluster import SparkCluster
from tsdb.chunks.late_scan import Windows
from tsdb.log.topics import CREATE_TIME
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PARTITIONS = 3
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms)
WINDOWS = Windows(FIRST_MS, FIRST_MS + 3 * DEMO.window_ms)
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@pytest.fixture
def eager(tmp_path: Path) -> Iterator[SparkSession]:
    """A session that runs slow tasks twice."""
    conf = {**CONF, **SPECULATION, "spark.local.dir": str(tmp_path / "local")}
    with (
        SparkCluster(tmp_path) as cluster,
        session(SessionOptions(cluster.master, "speculation", ui=False, conf=conf)) as spark,
    ):
        yield spark


@pytest.mark.parametrize("log_factory", ["sqlite", "kafka"], indirect=True)
def test_a_held_up_task_and_its_copy_leave_what_follows_from_the_log(
    eager: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    recorded, seen = RecordedLog(PARTITIONS, windows=4), tmp_path / "seen"
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    log = log_factory.open(clock=still(recorded.end_ms))
    recorded.write(log)
    want = [inside(uninterrupted(log, number, DEMO), WINDOWS) for number in range(PARTITIONS)]
    done = rebuild(eager, build_options(log, HeldUpPlaces.of(places(log_factory), seen)), WINDOWS)
    items = done.items
    assert items >= 8
    assert attempts_of(seen, HELD_UP) == [0, 1], "no copy ran"
    assert has_met(seen), "what ran was a second try, not a copy"
    assert [written_to(log, number) for number in range(PARTITIONS)] == want
    again = rebuild(eager, build_options(log, places(log_factory)), WINDOWS)
    assert again == done, "what a copy wrote was counted too"
    assert [written_to(log, number) for number in range(PARTITIONS)] == want

"""Attacks the promise that all readers get the same samples, bit for bit: queriers over Cassandra and over the Iceberg
table, Spark's data source over Cassandra, and DuckDB, pyiceberg and Spark's own reader over the table.

The samples are real ones, late, repeated and out of order. Windows are folded and files joined between writes. Keepers
of the table are killed around their commits.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_backfill
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.places import Places
from spark_backfill.result import MergeLateResult
from support.data import recordings
from support.data.table_rows import NAME, reopened, settings_in
from support.drills.history_drill import HistoryDrill
from support.drills.table_drill import (
    by_data_source,
    by_duckdb,
    by_pyiceberg,
    by_spark_iceberg,
    compare,
    dying_keepers,
    keeping,
    over_table,
    whole,
)
from support.servers.duck import iceberg_connection
from support.servers.logs import wait_until
from support.servers.way import Way
from support.servers.ways import PARTITIONS, new_way
from support.shared_servers import contract_history
from support.spark.iceberg_reader import SparkIceberg
from support.spark.spark import test_session as spark_session
from tsdb.history.iceberg.catalog import open_catalog
from tsdb.history.iceberg.maintain import compact
from tsdb.log.meta import write_meta
from tsdb.model.meta import MetaSettings

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_600)]

WINDOWS = 12
READS = 500


def test_500_random_reads_are_equal_by_all_readers(
    kafka: Any, cassandra: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths, rng = dying_keepers(monkeypatch, 85), random.Random(86)
    recording = recordings.node(WINDOWS, every=12)
    ends, url = recording.window_ends, f"kafka://{kafka.bootstrap}"
    history_url, prefix = contract_history(cassandra), "reads_of_all."
    with (
        spark_session(tmp_path) as spark,
        SparkIceberg(tmp_path) as of_iceberg,
        new_way(url, history_url, recording, seed=87, prefix=prefix) as way,
        keeping(way.log, tmp_path, way),
        HistoryDrill(way, rng) as drill,
    ):
        places, meta = Places(url, prefix, history_url), MetaSettings(partitions=PARTITIONS, time_set=way.times)
        write_meta(way.log, meta)
        for third in range(3):
            drill.run(ends[third * WINDOWS // 3 : (third + 1) * WINDOWS // 3], outage=(), random_reads=0)
            drill.write_late(drill.healthy, "late")
            fold(spark, way, places, meta)
            join_files(tmp_path)
        drill.read_evicted(ends, random_reads=0)
        fold(spark, way, places, meta)
        wait_until(lambda: whole(way.log, tmp_path, way) is not None)
        state = whole(way.log, tmp_path, way)
        assert state is not None
        through_ms = min(one.emitted_through_ms for one in state.cut.values())
        table = reopened(tmp_path)
        with over_table(way, drill, tmp_path) as querier, iceberg_connection() as duck:
            readers = {
                "DuckDB": by_duckdb(duck, table),
                "pyiceberg": by_pyiceberg(table),
                "Spark's Iceberg reader": by_spark_iceberg(of_iceberg, table),
                "the data source": by_data_source(spark, places),
            }
            compare(way, drill, querier, readers, through_ms, rng, reads=READS)
    print(f"{deaths.before} keepers died before and {deaths.after} after a commit")
    assert min(deaths.before, deaths.after) >= 4


def fold(spark: SparkSession, way: Way, places: Places, meta: MetaSettings) -> None:
    """Fold windows with late fragments, and delete the rows that the folds cover."""
    spark_backfill.register(spark)
    options = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=60_000, tasks=2)
    with way.loading():
        result = merge_late(spark, places, meta, options, way.clock)
    assert isinstance(result, MergeLateResult)
    print(f"folded: {result.figures()}")


def join_files(folder: Path) -> None:
    with open_catalog(settings_in(folder)) as catalog:
        print(f"{sum(one.files_before for one in compact(catalog, NAME, 2))} files joined")

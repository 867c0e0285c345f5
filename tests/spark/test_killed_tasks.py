"""Attacks the promise that what tasks write is the same however often they run: workers of rebuild, merge-late and
downsample are killed among their appends, and each job runs twice at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.building.options import BuildOptions
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.jobs.rebuild.job import rebuild
from support.data.late_storm import assert_reads
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.chunkers import inside, uninterrupted, written_to
from support.servers.histories import META, HistoryFactory
from support.servers.logs import LogFactory
from support.spark.import_faults import GRAVES, DyingPlaces
from support.spark.pipelines import build_options, still
from support.spark.spark import places
from support.spark.storm_pair import StormPair
from tsdb.chunks.late_scan import Windows
from tsdb.log.topics import CREATE_TIME
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

PARTITIONS = 3
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms)
WINDOWS = Windows(FIRST_MS, FIRST_MS + 3 * DEMO.window_ms)
FOLD = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=120_000, tasks=8)


@pytest.mark.soak  # In each run workers of a pipeline, of an import and of folds are killed.
@pytest.mark.parametrize("log_factory", ["sqlite"], indirect=True)
def test_a_rebuild_with_killed_workers_writes_the_records_of_the_log(
    spark: SparkSession, log_factory: LogFactory, tmp_path: Path
) -> None:
    recorded, graves = RecordedLog(PARTITIONS, windows=4), tmp_path / GRAVES
    log_factory.create(PARTITIONS, timestamp_type=CREATE_TIME)
    log = log_factory.open(clock=still(recorded.end_ms))
    recorded.write(log)
    want = [inside(uninterrupted(log, number, DEMO), WINDOWS) for number in range(PARTITIONS)]
    where = places(log_factory)

    def run(options: BuildOptions) -> int:
        done = rebuild(spark, options, WINDOWS)
        assert [written_to(log, number) for number in range(PARTITIONS)] == want
        return done.items

    assert run(build_options(log, DyingPlaces.of(where, graves, 2))) >= 8
    assert any(graves.iterdir()), "no worker died among its appends"
    with ThreadPoolExecutor(2) as pool:
        for twin in [pool.submit(run, build_options(log, where)) for _ in range(2)]:
            twin.result()


def test_folds_and_deletions_with_killed_workers_change_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    graves = tmp_path / GRAVES
    with (
        LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs,
        HistoryFactory(f"sqlite:///{tmp_path}/history.db") as histories,
    ):
        histories.create()
        pair = StormPair(logs, histories)
        pair.filled()
        dying = DyingPlaces.of(pair.places, graves, 2)
        died = []
        with pair.loading():
            for _ in ("folds", "deletes"):
                assert merge_late(spark, dying, META, FOLD).ok
                died.append(len(list(graves.iterdir())))
                assert_reads(pair.history, pair.storm.wanted)
            assert 0 < died[0] < died[1], "no worker died among its appends"
            assert {len(fragments) for fragments in pair.left().values()} == {1}
            pair.late()
            with ThreadPoolExecutor(2) as pool:
                for twin in [pool.submit(merge_late, spark, pair.places, META, FOLD) for _ in range(2)]:
                    assert twin.result().ok
            assert_reads(pair.history, pair.storm.wanted)
            # Both runs folded everything. The next run folds the folds, and one more deletes the covered rows.
            for _ in range(2):
                assert merge_late(spark, pair.places, META, FOLD).ok
        assert {len(fragments) for fragments in pair.left().values()} == {1}
        assert_reads(pair.history, pair.storm.wanted)

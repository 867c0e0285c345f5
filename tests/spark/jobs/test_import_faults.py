"""Attacks the promise that what runs again writes the same keys: imports and writes of frames whose workers are killed
among their appends, and twins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_backfill import register
from spark_backfill.failures import translate_spark_errors
from spark_backfill.jobs.imports.job import ImportOptions, import_files
from spark_backfill.source.columns import ARROW_MAP, ARROW_TS
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.spark.import_faults import GRAVES, DyingPlaces, DyingSource
from support.spark.imports import ImportGround
from tsdb.codec.chunk.key import ChunkKey
from tsdb.log.interface import CHUNKS
from tsdb.model.errors import ConfigMismatch
from tsdb.model.import_layout import ImportLayout

WAIT_S = 120.0
PAST_MS = 1_577_836_800_000
PARQUET = ImportLayout("parquet")
SERIES, STEPS = 40, 100


def rows(*, labels_as_map: bool = False, more: float = 0.0) -> pa.Table:
    """Packs enough that each of eight tasks has many chunks to write."""
    labels = [{"__name__": f"m{n % 5}", "job": "j", "instance": f"i{n // 5}"} for n in range(SERIES)]
    times = np.tile(PAST_MS + 250_000 * np.arange(STEPS), SERIES)
    values = np.arange(SERIES * STEPS, dtype=np.float64) + more
    if labels_as_map:
        column = pa.array([list(each.items()) for each in labels for _ in range(STEPS)], ARROW_MAP)
        return pa.table({"labels": column, "ts": pa.array(times * 1000).cast(ARROW_TS), "value": values})
    return pa.table({"labels": np.repeat(list(map(json.dumps, labels)), STEPS), "ts_ms": times, "value": values})


def appended(ground: ImportGround) -> int:
    marks = ground.log.watermarks(CHUNKS, range(ground.shared.partitions))
    return sum(mark.high - mark.low for mark in marks.values())


@contextmanager
def another(folder: Path) -> Iterator[ImportGround]:
    """Embedded, for a run that nothing disturbs."""
    logs, histories = LogFactory(f"sqlite:///{folder}/two.db", ""), HistoryFactory(f"sqlite:///{folder}/two.past.db")
    with logs, histories, ImportGround(logs, histories) as ground:
        yield ground


def test_killed_workers_and_twins_leave_the_keys_of_one_run(
    spark: SparkSession, ground: ImportGround, tmp_path: Path
) -> None:
    path, graves = str(tmp_path / "rows.parquet"), tmp_path / GRAVES
    pq.write_table(rows(), path)
    options = ImportOptions("faults", wait_s=WAIT_S)
    dying = DyingPlaces.of(ground.places, graves)
    done = import_files(spark, [path], PARQUET, dying, ground.shared, options)
    held = ground.rows()
    assert any(graves.iterdir()), "no worker died among its appends"
    assert done.samples == SERIES * STEPS
    assert done.chunks == len(held) < appended(ground)
    # Two equal tasks run at once, as with speculation: every key is written twice again.
    with ThreadPoolExecutor(2) as pool:
        given = spark, [path], PARQUET, ground.places, ground.shared, options
        twins = [pool.submit(import_files, *given) for _ in range(2)]
        assert [twin.result().chunks for twin in twins] == [len(held)] * 2
    assert ground.rows() == held
    with another(tmp_path) as undisturbed:
        import_files(spark, [path], PARQUET, undisturbed.places, undisturbed.shared, options)
        assert undisturbed.rows() == held


@pytest.mark.soak  # In each run an import of files has them, and a frame that is written twice is in test_source.py.
def test_a_frame_with_killed_and_repeated_writers_is_written_like_an_undisturbed_one(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path
) -> None:
    spark.dataSource.register(DyingSource)
    graves = tmp_path / GRAVES
    held = written(spark, embedded, source="tsdb_dying", graves=str(graves))
    assert any(graves.iterdir()), "no worker died among its appends"
    assert len(held) < appended(embedded)
    with ThreadPoolExecutor(2) as pool:
        twins = [pool.submit(written, spark, embedded) for _ in range(2)]
        assert [twin.result() for twin in twins] == [held] * 2
    with another(tmp_path) as undisturbed:
        assert written(spark, undisturbed) == held


def test_another_frame_under_a_job_id_that_was_written_is_refused_before_it_changes_anything(
    spark: SparkSession, embedded: ImportGround
) -> None:
    held, before = written(spark, embedded), appended(embedded)
    for tasks, more in ((4, 0.5), (3, 0.0)):
        with pytest.raises(ConfigMismatch, match="give this one another") as refused, translate_spark_errors():
            written(spark, embedded, tasks=tasks, more=more)
        assert refused.value.reason == "other_frame"
    assert appended(embedded) == before
    assert embedded.rows() == held


def written(
    spark: SparkSession,
    ground: ImportGround,
    *,
    source: str = "tsdb",
    tasks: int = 4,
    more: float = 0.0,
    **options: str,
) -> dict[ChunkKey, bytes]:
    """Content of history after an import of a frame with this number of tasks."""
    register(spark)
    # Created here: a new thread has no active session, and without one Spark finds no Python sources.
    frame = spark.createDataFrame(rows(labels_as_map=True, more=more)).repartition(tasks)
    frame.write.format(source).options(**ground.places.options(), job_id="frame", **options).mode("append").save()
    return ground.rows()

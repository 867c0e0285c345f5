"""Functions run the jobs in a user's session, leave it as it was, and refuse bad input before any task."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import spark_backfill
from spark_backfill import Installation
from spark_backfill.session import SessionOptions, start_session
from spark_backfill.user_session import job_session
from support.servers.logs import LogFactory, wait_until
from support.spark.chunk_progress import write_progress
from support.spark.imports import ImportGround
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import CHUNKS, METRICS
from tsdb.log.meta import write_meta
from tsdb.model.errors import TsdbError
from tsdb.model.meta import MetaSettings

FIRST_MS = 1_577_836_800_000  # 2020-01-01T00:00Z, the start of a window.
HOUR_MS = 3_600_000
ZONE = "spark.sql.session.timeZone"
DESCRIPTION = "spark.job.description"


@pytest.fixture
def installation(embedded: ImportGround) -> Installation:
    """An installation whose chunk stage has emitted everything."""
    write_progress(embedded.log)
    # A loader that began behind the markers writes `loaded` only once queriers have seen the new generation.
    topic_id = embedded.log.topic_id(METRICS)
    wait_until(lambda: len(embedded.history.loaded(topic_id)) == embedded.log.partitions(METRICS))
    return spark_backfill.connect(log=embedded.places.log, history=embedded.places.history)


@pytest.fixture
def far_away(spark: SparkSession) -> Any:
    """The shared session as a user in another time zone has it."""
    before = spark.conf.get(ZONE) or "UTC"
    # A second builder of the same process leaves settings in the session that no other session may set.
    SparkSession.builder.config("spark.log.level", "WARN").config("fs.mine", "1").getOrCreate()
    spark.conf.set(ZONE, "Pacific/Kiritimati")
    spark.sparkContext.setJobDescription("mine")
    yield spark
    assert spark.conf.get(ZONE) == "Pacific/Kiritimati"
    assert spark.sparkContext.getLocalProperty(DESCRIPTION) == "mine"
    assert SparkSession.getActiveSession() is spark
    spark.conf.set(ZONE, before)
    spark.sparkContext.setLocalProperty(DESCRIPTION, None)  # type: ignore[arg-type]  # None removes it


def test_a_job_runs_in_utc_and_with_the_users_file_systems(far_away: SparkSession) -> None:
    with job_session(far_away) as session:
        assert session is not far_away
        assert (session.conf.get(ZONE), session.conf.get("fs.mine")) == ("UTC", "1")
        assert SparkSession.getActiveSession() is session


def test_every_job_is_a_function_and_leaves_the_users_session_as_it_was(
    far_away: SparkSession, installation: Installation, tmp_path: Path
) -> None:
    spark, day = far_away, (datetime(2020, 1, 1, tzinfo=UTC), "2020-01-02")
    file = tmp_path / "rows.jsonl"
    lines = [
        {"labels": {"__name__": "up", "job": "j"}, "at": f"2020-01-01T{hour:02d}:30:00", "value": hour}
        for hour in range(24)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    files = {"format": "jsonl", "time": "at", "time_unit": "iso", "job_id": "functions"}
    imported = spark_backfill.import_files(spark, installation, file, **files)  # type: ignore[arg-type]
    assert (imported.ok, imported.samples, imported.job_id, imported.loaded) == (True, 24, "functions", True)

    verified = spark_backfill.verify(spark, installation, *day)
    assert (verified.ok, verified.problems, verified.history_missing) == (True, 0, 0), verified
    rebuilt = spark_backfill.rebuild(spark, installation, *day)
    assert (rebuilt.from_ms, rebuilt.to_ms, rebuilt.base_chunks) == (FIRST_MS, FIRST_MS + 24 * HOUR_MS, 0)
    derived = spark_backfill.downsample(spark, installation, start=FIRST_MS)
    assert (derived.windows_stale, derived.windows_refused) == (6, 0)
    plan = spark_backfill.merge_late(spark, installation, min_fragments=1, start=day[0], end=day[1])
    assert (plan.chunks, plan.to_fold, plan.per_chunk) == (6 * 3, 0, 1.0), plan

    copy = spark_backfill.export(spark, installation, tmp_path / "copy", "up", start=day[0], end=day[1])
    assert copy.samples == 24
    assert [found.name for found in (tmp_path / "copy").glob("day=*")] == ["day=2020-01-01"], "days are UTC"
    assert pq.read_table(tmp_path / "copy")["value"].to_pylist() == list(range(24))
    spark_backfill.register(spark)
    samples = spark.read.format("tsdb").options(**installation.options, selector="up").load()
    assert samples.count() == 24


Call = Callable[[SparkSession, Installation], Any]
DAY = ("2020-01-01", "2020-01-02")
REFUSED: list[tuple[Call, str, str]] = [
    (lambda _, on: spark_backfill.rebuild(object(), on, *DAY), "bad_session", "want a pyspark.sql.SparkSession"),  # type: ignore[arg-type]
    (lambda spark, on: spark_backfill.rebuild(spark, on, "2020-01-01T01:00", DAY[1]), "not_whole_windows", "no whole"),
    (lambda spark, on: spark_backfill.verify(spark, on, DAY[1], DAY[0]), "range_empty", "is empty"),
    (lambda spark, on: spark_backfill.verify(spark, on, DAY[0], "9999-12-31"), "too_recent", "closed are those"),
    (lambda spark, on: spark_backfill.merge_late(spark, on, min_fragments=0), "bad_count", "min_fragments is 0"),
    (lambda spark, on: spark_backfill.export(spark, on, "/x", "up{"), "bad_selector", "1:4: parse error"),
    (lambda spark, on: spark_backfill.export(spark, on, "/x", start=DAY[1], end=DAY[0]), "bad_range", "not before end"),
    (lambda spark, on: spark_backfill.export(spark, on, "/tmp"), "folder_exists", "give another folder"),
    (lambda spark, on: spark_backfill.import_files(spark, on, "/nowhere/x"), "spark_failed", "/nowhere/x"),
    (lambda spark, on: spark_backfill.import_files(spark, on, "/x", format="xls"), "bad_layout", "format is 'xls'"),
    (lambda spark, on: spark_backfill.import_files(spark, on, "/x", job_id="a b"), "bad_job_id", "job id 'a b'"),
    (lambda _, on: spark_backfill.connect(log=on.settings.log, time_set="demo"), "meta", "time_set"),
]


def test_bad_input_is_refused_in_a_line(spark: SparkSession, installation: Installation) -> None:
    before = [marks.high for marks in _marks(installation)]
    for call, reason, text in REFUSED:
        with pytest.raises(TsdbError) as refused:
            call(spark, installation)
        assert (refused.value.reason, text in refused.value.message) == (reason, True), refused.value
        assert "\n" not in refused.value.message.strip()
    assert [marks.high for marks in _marks(installation)] == before, "a refused call has written a record"


def test_jobs_over_history_are_refused_without_one_and_ranges_before_the_log_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TSDB_HISTORY", raising=False)
    with LogFactory(f"sqlite:///{tmp_path}/trimmed.db", "") as logs:
        admin = logs.create(2)
        log = logs.open()
        write_meta(log, MetaSettings(partitions=2))
        for partition in (0, 1):
            for _ in range(20):
                log.append_sync(METRICS, partition, encode_tick())
        admin.trim(METRICS, {1: 10})
        alone = spark_backfill.connect(log=logs.url)
        for job in (spark_backfill.merge_late, spark_backfill.downsample):
            with pytest.raises(TsdbError) as refused:
                job(spark, alone)
            assert refused.value.reason == "history_url"
        with pytest.raises(TsdbError) as refused:
            spark_backfill.rebuild(spark, alone, *DAY)
        assert refused.value.reason == "before_retention"


def test_an_import_that_failed_names_its_job_id(spark: SparkSession, embedded: ImportGround, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"labels": {"__name__": "up"}, "ts_ms": FIRST_MS, "value": 1}))
    installation = spark_backfill.connect(log=embedded.places.log, history=embedded.places.history)
    with embedded.no_loader(), pytest.raises(TsdbError) as failed:
        spark_backfill.import_files(spark, installation, file, format="jsonl", wait=timedelta(milliseconds=100))
    assert failed.value.reason == "loader_behind"
    (note,) = failed.value.__notes__
    job_id = note.removeprefix("to run the same import again: job_id=").strip("'")
    again = spark_backfill.import_files(spark, installation, file, format="jsonl", job_id=job_id)
    assert again.ok
    assert len(embedded.rows()) == 1, "the run again has the keys of the run that failed"


def test_a_session_without_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(TsdbError) as refused:
        start_session(SessionOptions())
    assert refused.value.reason == "no_java"


def _marks(installation: Installation) -> list[Any]:
    with installation.places.open_log() as log:
        topics = (METRICS, CHUNKS)
        return [marks for topic in topics for marks in log.watermarks(topic, range(log.partitions(topic))).values()]

"""The examples over history reduce it by day, and the source takes their conditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from examples.spark_daily_report import daily_report
from examples.spark_history import daily_means
from spark_backfill import register
from spark_backfill.source.columns import ARROW_MAP, ARROW_TS
from support.spark.imports import ImportGround

FIRST = datetime(2020, 1, 1, tzinfo=UTC)


def test_the_example_reads_daily_means_from_history(
    spark: SparkSession, embedded: ImportGround, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [FIRST + timedelta(hours=6 * step) for step in range(8)]
    labels = [list({"__name__": "node_load1", "job": "j", "instance": "a"}.items())] * len(times)
    values = [float(step) for step in range(len(times))]
    table = pa.table({"labels": pa.array(labels, ARROW_MAP), "ts": pa.array(times, ARROW_TS), "value": values})
    register(spark)
    options = {**embedded.places.options(), "job_id": "example", "wait_s": "120"}
    spark.createDataFrame(table).write.format("tsdb").options(**options).mode("append").save()

    report = daily_report(spark, embedded.places.options(), "j", "2020-01-02", "2020-01-04")
    report.explain("formatted")
    plan = capsys.readouterr().out
    (pushed,) = (line for line in plan.splitlines() if line.startswith("PushedFilters"))
    for condition in ("EqualTo(__name__,node_load1)", "EqualTo(job,j)", "GreaterThanOrEqual(ts,", "LessThan(ts,"):
        assert condition in pushed, plan
    assert "Filter" not in plan.replace("PushedFilters", "")
    (row,) = report.collect()
    assert (row["instance"], row["samples"], row["lowest"], row["highest"]) == ("a", 4, 4.0, 7.0)

    embedded.mark_loaded(int((FIRST + timedelta(days=2)).timestamp() * 1000))
    history = embedded.places.options()["history"]
    rows = daily_means(spark, history, "node_load1", FIRST, FIRST + timedelta(days=2)).collect()
    assert [(row["instance"], row["mean"], row["highest"], row["samples"]) for row in rows] == [
        ("a", 1.5, 3.0, 4),
        ("a", 5.5, 7.0, 4),
    ]

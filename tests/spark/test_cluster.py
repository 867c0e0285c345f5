"""Tasks, executors and memory of an application reach the driver's metrics and a job's summary, from Spark's status."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyspark.sql import SparkSession

from spark_backfill.cluster import ClusterWatch
from support.servers.logs import wait_until
from tsdb.ops.metrics import registry


def failing(numbers: Iterable[int]) -> Iterable[int]:
    raise ValueError("this task fails")


def metric(name: str, **labels: str) -> float:
    return registry.get_sample_value(f"tsdb_spark_{name}", labels) or 0.0


def test_tasks_memory_and_places_of_an_application_are_shown(spark: SparkSession) -> None:
    watch = ClusterWatch(spark)
    watch.look()
    ok, failed = metric("tasks_total", result="ok"), metric("tasks_total", result="failed")
    spark.sparkContext.parallelize(range(6), 3).count()
    with pytest.raises(Exception, match="this task fails"):
        spark.sparkContext.parallelize(range(2), 1).mapPartitions(failing).count()

    def seen() -> bool:
        watch.look()
        return metric("tasks_total", result="ok") >= ok + 3 and metric("tasks_total", result="failed") >= failed + 1

    wait_until(seen)
    assert metric("executors") == 1
    assert 0 < metric("driver_heap_bytes") <= metric("driver_heap_bytes_max")
    facts = watch.facts()
    assert facts["application"] == spark.sparkContext.applicationId
    assert int(facts["tasks"]) >= 3
    assert int(facts["tasks_failed"]) >= 1
    assert facts["executors_lost"] == 0
    assert ("spark_ui" in facts) == (spark.sparkContext.uiWebUrl is not None)
    assert "event_log" not in facts

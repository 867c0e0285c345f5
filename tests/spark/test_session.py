"""The session that all share runs Python tasks with our packages, its filters pushed and its times in UTC."""

from __future__ import annotations

from pyspark.sql import SparkSession


def test_tasks_run_the_drivers_python_with_our_packages(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import sys

        import tsdb

        return f"{sys.executable} {tsdb.__name__}"

    import sys

    assert set(spark.sparkContext.parallelize(range(4), 4).map(where).collect()) == {f"{sys.executable} tsdb"}


def test_times_are_utc_and_filters_are_pushed(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"

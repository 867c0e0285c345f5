"""The session that all share runs Python tasks with our packages, its filters pushed and its times in UTC."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from spark_backfill.failures import quoted_errors


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


def test_a_worker_looks_no_more_for_garbage_in_what_its_first_task_loaded(spark: SparkSession) -> None:
    def task(_: Iterable[int]) -> Iterator[int]:
        with quoted_errors():
            pass
        yield gc.get_freeze_count()

    assert min(spark.sparkContext.parallelize(range(2), 2).mapPartitions(task).collect()) > 0
    gc.unfreeze()  # What other tests of this process have frozen.
    with quoted_errors():
        pass
    assert gc.get_freeze_count() == 0, "a driver is not ours to tune"

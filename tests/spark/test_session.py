"""The shared session runs Python tasks with our packages, pushes filters into sources and has its times in UTC."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from spark_backfill.failures import UNFROZEN_OBJECTS_MAX, quoted_errors


def test_tasks_run_the_drivers_python_with_our_packages(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import tsdb

        return f"{sys.executable} {tsdb.__name__}"

    assert set(spark.sparkContext.parallelize(range(4), 4).map(where).collect()) == {f"{sys.executable} tsdb"}


def test_a_new_worker_has_modules_before_its_first_task(spark: SparkSession) -> None:
    def where(_: int) -> tuple[str, bool]:
        import pyspark

        return str(pyspark.__file__), "tsdb.codec.chunk.chunk" in sys.modules

    import pyspark

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [(str(pyspark.__file__), True)]


def test_times_are_utc_and_filters_are_pushed(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_a_worker_excludes_loaded_objects_from_later_garbage_collections(spark: SparkSession) -> None:
    def task(_: Iterable[int]) -> Iterator[int]:
        with quoted_errors():
            held.append([[] for _ in range(2 * UNFROZEN_OBJECTS_MAX)])
        yield len(gc.get_objects())

    held: list[list[list[int]]] = []  # Called in a worker, it reports the worker's state.
    for _ in range(3):  # Later tasks load more.
        collected = spark.sparkContext.parallelize(range(2), 2).mapPartitions(task).collect()
        assert max(collected) < UNFROZEN_OBJECTS_MAX
    gc.unfreeze()  # Other tests of this process may have frozen objects.
    with quoted_errors():
        pass
    assert gc.get_freeze_count() == 0, "a driver is not ours to tune"

"""Prints the progress of a job on stderr: finished tasks among the tasks known so far, from Spark's status tracker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tsdb.cli.terminal.progress import progress_bar
from tsdb.ops.threads import new_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.5


@contextmanager
def task_progress(spark: SparkSession, name: str) -> Iterator[None]:
    """Show progress during the block."""
    ended = threading.Event()
    thread = new_thread(_watch, "spark-progress", spark, name, ended)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(spark: SparkSession, name: str, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    done: dict[int, int] = {}
    known: dict[int, int] = {}
    with progress_bar(name, "tasks") as (advance, expect):
        while not ended.wait(LOOK_S):
            # A finished stage is no longer active, so known stages are read until all their tasks are done.
            open_ids = {stage for stage, tasks in known.items() if done[stage] < tasks}
            for stage in open_ids | set(tracker.getActiveStageIds()):
                info = tracker.getStageInfo(stage)
                if info is not None:
                    expect(info.numTasks - known.get(stage, 0))
                    advance(max(info.numCompletedTasks - done.get(stage, 0), 0))
                    known[stage], done[stage] = info.numTasks, max(info.numCompletedTasks, done.get(stage, 0))

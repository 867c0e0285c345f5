"""Spark beside: how long batches of the stream take while a job runs: in the same application, and in a separate one.

The job burns CPU in tasks of some seconds, as those of large windows do. In one application its tasks take every free
core, and Spark gives the next free one to the stream. The separate application has one core, and the stream the rest.
The same stream goes on through all parts; two parts without a job are the control.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ground import kafka_log
from bench.measure import percentiles_ms, say
from bench.spark.spark_ground import PARTITIONS, ROOT
from bench.spark.spark_pipeline import LIVE_SERIES, LiveFlow
from bench.workload import Workload
from spark_backfill.application.application import SESSION_CONF, STREAM_POOL
from spark_backfill.application.jobs import JOBS_POOL, POOL_PROPERTY
from spark_backfill.building.options import BuildOptions
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import BATCH_WORK, Pipeline, PipelineOptions
from spark_backfill.places import Places
from spark_backfill.session import SessionOptions, session
from tsdb.log.interface import METRICS
from tsdb.log.open import open_log
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import DEMO, slice_lengths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
PART_S = 90.0
TASK_S = 3.0
QUIET, SAME, SEPARATE, AGAIN = PARTS = ("quiet", "same application", "separate application", "quiet again")
WARM_UP_WITHIN_S = 120.0
READY = "ready"


def main(argv: Sequence[str]) -> dict[str, object]:
    """Durations of batches with work in each part."""
    parser = argparse.ArgumentParser(prog="bench spark_beside", description=__doc__)
    parser.add_argument("--seconds", type=float, default=PART_S, help="length of each part")
    parser.add_argument("--task", type=float, default=TASK_S, help="seconds of a task of the job")
    parser.add_argument("--quick", action="store_true", help="parts of 20 s")
    arguments = parser.parse_args(argv)
    seconds = 20.0 if arguments.quick else arguments.seconds
    found: dict[str, list[float]] = {}
    with (
        kafka_log(PARTITIONS, broker_times=LOG_APPEND_TIME) as url,
        tempfile.TemporaryDirectory() as folder,
        _session(CORES, Path(folder)) as spark,
        open_log(url) as log,
    ):
        build = BuildOptions(Places(url), log.topic_id(METRICS), DEMO, slice_lengths(DEMO.name))
        batches = _Batches(spark)
        running = Pipeline(spark, log, PipelineOptions(build, None, 1.0), SystemClock(), batches.look)

        def stream() -> None:
            spark.sparkContext.setLocalProperty(POOL_PROPERTY, STREAM_POOL)
            running.run(GroupMembership(log, SystemClock()))

        thread = threading.Thread(target=stream, name="stream")
        with LiveFlow(log, Workload(LIVE_SERIES, PARTITIONS)):
            thread.start()
            try:
                _wait_warm(running)
                for part in PARTS:
                    with _job(part, spark, arguments.task):
                        batches.take()
                        time.sleep(seconds)
                        found[part] = batches.take()
                    say(f"{part}: {_figures(found[part])}")
            finally:
                running.stop()
                thread.join()
    control = found[QUIET] + found[AGAIN]
    return {
        "task_s": arguments.task,
        "parts": {part: _figures(found[part]) for part in PARTS},
        "p99_of_quiet": {part: round(_p99(found[part]) / _p99(control), 2) for part in (SAME, SEPARATE)},
    }


def job_process(task_s: str) -> None:
    """The separate application: prints READY after its first task, and goes on until it is killed."""
    with tempfile.TemporaryDirectory() as folder, _session(1, Path(folder)) as spark:
        spark.sparkContext.parallelize([0], 1).foreachPartition(partial(_burn, 0.1))
        print(READY, flush=True)
        while True:
            spark.sparkContext.parallelize(range(4), 4).foreachPartition(partial(_burn, float(task_s)))


class _Batches:
    """Seconds of the batches with work, from Spark's reports."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._lock = threading.Lock()  # Guards the fields below.
        self._last = -1
        self._found: list[float] = []

    def look(self) -> None:
        """Add the batches that ended since. Spark keeps the last 100 reports."""
        for query in self._spark.streams.active:
            for report in map(json.loads, (each.json for each in query.recentProgress)):
                with self._lock:
                    if report["batchId"] > self._last and BATCH_WORK in report["durationMs"]:
                        self._last = report["batchId"]
                        self._found.append(report["durationMs"]["triggerExecution"] / 1000)

    def take(self) -> list[float]:
        """The batches since the last call."""
        with self._lock:
            found, self._found = self._found, []
        return found


@contextmanager
def _session(cores: int, folder: Path) -> Iterator[SparkSession]:
    conf = {
        **SESSION_CONF,
        "spark.local.dir": str(folder),
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "spark.log.level": "ERROR",
    }
    with session(SessionOptions(f"local[{cores}]", "bench", ui=False, conf=conf)) as spark:
        yield spark


@contextmanager
def _job(part: str, spark: SparkSession, task_s: float) -> Iterator[None]:
    if part == SAME:
        with _same_application(spark, task_s):
            yield
    elif part == SEPARATE:
        with _separate_application(task_s):
            yield
    else:
        with nullcontext():
            yield


@contextmanager
def _same_application(spark: SparkSession, task_s: float) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        spark.sparkContext.setLocalProperty(POOL_PROPERTY, JOBS_POOL)
        while not ended.is_set():
            spark.sparkContext.parallelize(range(8), 8).foreachPartition(partial(_burn, task_s))

    thread = threading.Thread(target=run, name="job")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _separate_application(task_s: float) -> Iterator[None]:
    code = f"from bench.spark.spark_beside import job_process; job_process('{task_s}')"
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert READY in process.stdout.readline(), "the job's application ended"
        yield
    finally:
        process.kill()
        process.wait()


def _burn(seconds: float, rows: Iterable[int]) -> None:
    assert list(rows) is not None
    ends_at = time.process_time() + seconds
    while time.process_time() < ends_at:
        sum(range(10_000))


def _wait_warm(running: Pipeline) -> None:
    """Wait for some batches with work: workers have started then."""
    give_up_at = time.monotonic() + WARM_UP_WITHIN_S
    while running.totals.batches < 5:
        assert time.monotonic() < give_up_at, "no batches with work"
        time.sleep(0.5)


def _figures(seconds: list[float]) -> dict[str, object]:
    return {"batches": len(seconds), **percentiles_ms(seconds)}


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]

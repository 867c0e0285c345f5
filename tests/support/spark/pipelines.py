"""Streaming chunk stages in the shared session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from pyspark.sql import SparkSession

from spark_backfill import worker_daemon
from spark_backfill.building.options import BuildOptions
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions, RunTotals
from spark_backfill.pipeline.planner import BatchLimits
from spark_backfill.places import Places
from support.servers.chunkers import FastClock
from support.servers.logs import WITHIN_S
from tsdb.log.interface import CHUNKS, METRICS, Log
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.time_set import DEMO, TimeSet, slice_lengths

SMALL = BatchLimits(stretch_records=300, records_max=1_500, windows_max=3)  # Many batches of many tasks.


def build_options(log: Log, places: Places, times: TimeSet = DEMO, *, patience_s: float = 60.0) -> BuildOptions:
    """As `tsdb spark pipeline` has by default."""
    return BuildOptions(places, log.topic_id(METRICS), times, slice_lengths(times.name), patience_s=patience_s)


def pipeline_options(
    log: Log, places: Places, checkpoint: Path | None, *, trigger_s: float | None = None, limits: BatchLimits = SMALL
) -> PipelineOptions:
    """Options of a run over all records, or of an endless one with trigger_s."""
    url = checkpoint.as_uri() if checkpoint else None
    return PipelineOptions(build_options(log, places), url, trigger_s, limits)


def run_all(
    spark: SparkSession,
    log: Log,
    places: Places,
    checkpoint: Path | None,
    *,
    clock: Clock | None = None,
    limits: BatchLimits = SMALL,
) -> RunTotals:
    """Run a pipeline over all records of the log."""
    clock = clock or SystemClock()
    options = pipeline_options(log, places, checkpoint, limits=limits)
    return Pipeline(spark, log, options, clock).run(GroupMembership(log, clock))


def run_until(
    spark: SparkSession, log: Log, options: PipelineOptions, clock: Clock, done: Callable[[], bool]
) -> RunTotals:
    """Run a pipeline and stop it as soon as the condition holds."""
    pipeline = Pipeline(spark, log, options, clock, lambda: pipeline.stop() if done() else None)
    return pipeline.run(GroupMembership(log, clock))


class WorkerKiller:
    """Kills the Python workers of the shared session once, while a batch runs: when `chunks` has grown a little."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker-killer")
        self.killed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(WITHIN_S)

    def _run(self) -> None:
        partitions = range(self._log.partitions(CHUNKS))
        while not self._ended.wait(0.05):
            if sum(marks.high for marks in self._log.watermarks(CHUNKS, partitions).values()) > 2 * len(partitions):
                self.killed = sum(map(_killed, _python_workers()))
                if self.killed:
                    return


def _python_workers() -> list[psutil.Process]:
    """Children of the worker daemon: Python workers that run tasks."""
    ours = psutil.Process().children(recursive=True)
    daemons = {one.pid for one in ours if _is_daemon(one)}
    return [one for one in ours if _parent_of(one) in daemons]


def _parent_of(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None  # The process ended meanwhile.


def _killed(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.Error:
        return False
    return True


def _is_daemon(process: psutil.Process) -> bool:
    try:
        return worker_daemon.__name__ in process.cmdline()  # An argument of the JVM contains it.
    except psutil.Error:
        return False


def still(at_ms: int) -> FastClock:
    """Time stands still, so that nothing ticks."""
    return FastClock(at_ms, 0.0)

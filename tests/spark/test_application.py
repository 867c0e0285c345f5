"""An application runs the stream and the scheduled jobs beside it. A job's failure never ends the stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backfill.application.application import Application, ApplicationOptions
from spark_backfill.application.jobs import JobOptions
from spark_backfill.application.jobs_alone import JobsAlone
from spark_backfill.application.journal import Journal
from spark_backfill.application.runs import JobRun, RunResult
from spark_backfill.application.schedule import Schedule
from spark_backfill.jobs.merge_late.job import MergeLateOptions
from spark_backfill.pipeline.group_membership import GroupMembership
from support.data.recorded_log import RecordedLog
from support.servers.chunkers import FastClock, committed
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.spark.pipelines import pipeline_options
from support.spark.spark import places
from tsdb.codec.chunk.key import Kind
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import Log
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO

PARTITIONS = 2
RECORDED = RecordedLog(PARTITIONS, windows=6)
SPEED = 5.0  # A window takes six seconds, and the distance of two due times two.
EVERY_10_S = Schedule("*/10 * * * * *")
NOW = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=60_000, tasks=2)


class Ground:
    """A log with half of a recording, a history with a loader, and an application over both."""

    def __init__(self, logs: LogFactory, histories: HistoryFactory, folder: Path) -> None:
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        histories.create()
        self.clock = FastClock(RECORDED.until_ms(part=0, of=2), speed=0.0)
        self.log: Log = logs.open(clock=self.clock)
        self.history: ChunkStore = histories.open()
        self.user = Journal(self.log, self.clock)
        self.loader = Loader(self.log, self.history, LoaderOptions(DEMO, commit_interval_s=0.02), SystemClock(), seed=1)
        stream = pipeline_options(self.log, places(logs, histories), folder / "checkpoint", trigger_s=0.2)
        jobs = JobOptions(stream.build, MetaSettings(partitions=PARTITIONS, time_set=DEMO), NOW)
        schedules = {"merge-late": EVERY_10_S, "downsample": None, "verify": EVERY_10_S}
        self.options = ApplicationOptions(stream, jobs, schedules)

    def go_on(self) -> None:
        """Write the second half; time passes from its end on."""
        RECORDED.write(self.log, part=1, of=2)
        self.clock.base_ms, self.clock.began, self.clock.speed = RECORDED.end_ms, time.monotonic(), SPEED

    def runs(self, kind: str) -> list[JobRun]:
        """Ended runs of a kind, as recorded."""
        self.user.refresh()
        runs = self.user.view.states[kind].runs
        return [run for run in runs.runs if run.end_ms is not None] if runs else []

    def emitted_ms(self) -> int:
        return min(committed(self.log, number).emitted_through_ms for number in range(PARTITIONS))

    def kinds(self) -> set[Kind]:
        """Kinds of the rows in history."""
        pieces = (piece for split in self.history.row_splits(2) for piece in self.history.scan(split))
        return {row.key.kind for rows in pieces for row in rows}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    logs, histories = LogFactory(f"sqlite:///{tmp_path}/log.db", ""), HistoryFactory(f"sqlite:///{tmp_path}/history.db")
    with logs, histories:
        yield Ground(logs, histories, tmp_path)


def test_late_samples_are_folded_and_verified_after_another_job_failed(spark: SparkSession, ground: Ground) -> None:
    RECORDED.write(ground.log, part=0, of=2)
    ground.loader.start()
    ground.user.request("downsample")  # Windows of the demo cannot be downsampled.

    def turn() -> None:
        if ground.clock.speed and is_done():
            application.stop()
        elif not ground.clock.speed and ground.runs("downsample"):
            ground.go_on()

    def is_done() -> bool:
        deleted = [run.end_ms or 0 for run in ground.runs("merge-late") if figure(run, "rows_deleted")]
        if not deleted or ground.emitted_ms() < RECORDED.last_ms:
            return False
        return any(run.begin_ms > min(deleted) and is_ok(run) for run in ground.runs("verify"))

    application = Application(spark, ground.log, ground.options, ground.clock, turn)
    totals = application.run(GroupMembership(ground.log, ground.clock))
    ground.loader.close()
    assert ground.loader.join(30.0)

    assert totals.batches > 1
    assert Kind.FOLDED in ground.kinds()
    failed = ground.runs("downsample")[0].outcome
    assert failed is not None
    assert (failed.result, failed.reason) == (RunResult.FAILED, "time_set")
    assert any(figure(run, "items") for run in ground.runs("verify"))
    results = {run.outcome.result for kind in ("merge-late", "verify") for run in ground.runs(kind) if run.outcome}
    assert RunResult.FINDINGS not in results, [run.outcome for run in ground.runs("verify")]
    seen = ground.user.view.application
    assert seen is not None
    assert seen.record.ended


def test_jobs_run_in_an_application_without_a_stream(spark: SparkSession, ground: Ground) -> None:
    stopping = threading.Event()
    ground.user.request("merge-late")

    def turn() -> None:
        if ground.runs("merge-late"):
            stopping.set()

    alone = JobsAlone(spark, ground.log, ground.options.jobs, {"merge-late": None}, ground.clock, turn, stopping)
    alone.run()
    (run,) = ground.runs("merge-late")
    assert is_ok(run), run
    assert ground.user.view.application is not None
    assert ground.user.view.application.record.ended


def figure(run: JobRun, name: str) -> int:
    return run.outcome.figures.get(name, 0) if run.outcome else 0


def is_ok(run: JobRun) -> bool:
    return run.outcome is not None and run.outcome.result is RunResult.OK


def test_a_second_application_is_refused_and_begins_no_job(spark: SparkSession, ground: Ground) -> None:
    RECORDED.write(ground.log, part=0, of=2)
    with GroupMembership(ground.log, ground.clock):
        second = Application(spark, ground.log, ground.options, ground.clock)
        with pytest.raises(Unavailable, match="another member of group chunks") as refused:
            second.run(GroupMembership(ground.log, ground.clock, alone_within_s=0.5))
    assert refused.value.reason == "group_in_use"
    assert not second.runner.is_started
    assert ground.runs("merge-late") == []

"""Application: runs the chunk stage's stream on the calling thread, and the scheduled jobs beside it.

Jobs begin once the stream holds the group `chunks` alone and has done its first batch, so two applications never run
jobs at the same time. Components, such as the keeper of the Iceberg table, begin then too. The stream's failure, and
that of a component, ends the application; a job's failure is recorded and repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spark_backfill.application.jobs import POOL_PROPERTY, JobOptions, spark_jobs
from spark_backfill.application.journal import Journal
from spark_backfill.application.runner import JobRunner
from spark_backfill.application.schedule import Schedule
from spark_backfill.application.scheduler import Scheduler
from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions, RunTotals
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.ops.lifecycle import Component, Deadline, fallible_of
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM_POOL = "stream"
JOBS_END_WITHIN_S = 5.0  # Cancelled tasks end within 2 s.
COMPONENTS_END_WITHIN_S = 10.0  # A commit of the table under way ends within a few seconds; a cut one is made again.

# Settings of the session: a job's tasks never keep the stream's tasks waiting for free cores.
SESSION_CONF = {
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": Path(__file__).with_name("fairscheduler.xml").as_uri(),
}

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ApplicationOptions:
    """schedules: the schedule of each kind of job. None: the kind runs only on request. A kind that is missing never
    runs.
    """

    pipeline: PipelineOptions
    jobs: JobOptions
    schedules: Mapping[str, Schedule | None]


class Application:
    """One run of the application. Any thread may call `stop`. on_turn: is called on the thread of `run`, some times a
    second. stopping: the event that `stop` sets. Another thread may set it too, but no signal handler (`stop_signals`
    explains why). components: run beside the stream, in the driver; they end before `run` returns."""

    def __init__(
        self,
        spark: SparkSession,
        log_: Log,
        options: ApplicationOptions,
        clock: Clock,
        on_turn: Callable[[], None] = lambda: None,
        stopping: threading.Event | None = None,
        components: Sequence[Component] = (),
    ) -> None:
        self._spark = spark
        self._components = components
        self._fallible = fallible_of(components)
        self._on_turn = on_turn
        self._stopping = stopping or threading.Event()
        self.pipeline = Pipeline(spark, log_, options.pipeline, clock, self._turn, self._stopping)
        self.scheduler = Scheduler(Journal(log_, clock), options.schedules, clock)
        jobs = spark_jobs(spark, options.jobs, self.scheduler)
        self.runner = JobRunner(self.scheduler, {kind: jobs[kind] for kind in options.schedules}, clock, self._stopping)

    def run(self, membership: GroupMembership) -> RunTotals:
        """Run until `stop`. Raises the errors of Pipeline.run."""
        # The query's thread inherits the pool from this one.
        self._spark.sparkContext.setLocalProperty(POOL_PROPERTY, STREAM_POOL)
        try:
            return self.pipeline.run(membership)
        finally:
            self.stop()
            for component in self._components:
                component.close()
            if not self.runner.join(JOBS_END_WITHIN_S):
                log.warning("a job did not end with the application", within_s=JOBS_END_WITHIN_S)
            deadline = Deadline.after(COMPONENTS_END_WITHIN_S)
            for component in self._components:
                if component.join(deadline.remaining()) is False:
                    log.warning("a component did not end with the application", within_s=COMPONENTS_END_WITHIN_S)

    def stop(self) -> None:
        """End now: the batch under way is dropped, running jobs are cancelled."""
        self._stopping.set()

    def _turn(self) -> None:
        # Jobs that are overdue at a start would take the cores that the query's planner needs: Spark gives that process
        # 10 s to start, and fails the query after them.
        if not self.runner.is_started and self.pipeline.has_begun:
            self.runner.start()
            for component in self._components:
                component.start()
        self.runner.check()
        for fallible in self._fallible:
            if (error := fallible.failure()) is not None:
                raise error
        self._on_turn()

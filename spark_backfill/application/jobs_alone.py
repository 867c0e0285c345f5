"""Jobs alone: runs the scheduled jobs in a separate application, beside a stream or chunkers in other processes.

A job's tasks then never have the cores that the stream's tasks wait for. No group tells which application has the jobs,
so the application's record in `meta` does: an application begins when no other one writes that record, and ends when
another one has begun since. Until it sees that, both may run a job, which is safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spark_backfill.application.jobs import JobOptions, spark_jobs
from spark_backfill.application.journal import SILENT_MS_MAX, Journal, NewestRecord
from spark_backfill.application.runner import JobRunner
from spark_backfill.application.schedule import Schedule
from spark_backfill.application.scheduler import Scheduler
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURN_S = 0.5
JOBS_END_WITHIN_S = 5.0  # Cancelled tasks end within 2 s.

log = get_logger(__name__)


class JobsAlone:
    """One run of the application. stopping: ends it when it is set, by any thread but by no signal handler. on_turn: is
    called on the thread of `run`, some times a second."""

    def __init__(
        self,
        spark: SparkSession,
        log_: Log,
        options: JobOptions,
        schedules: Mapping[str, Schedule | None],
        clock: Clock,
        on_turn: Callable[[], None] = lambda: None,
        stopping: threading.Event | None = None,
    ) -> None:
        self._journal = Journal(log_, clock)
        self._clock = clock
        self._on_turn = on_turn
        self._stopping = stopping or threading.Event()
        self.scheduler = Scheduler(Journal(log_, clock), schedules, clock)
        jobs = spark_jobs(spark, options, self.scheduler)
        self.runner = JobRunner(self.scheduler, {kind: jobs[kind] for kind in schedules}, clock, self._stopping)

    def run(self) -> None:
        """Run until `stopping`. Raises Unavailable (jobs_in_use) when another application runs the jobs, and the error
        that ended a thread."""
        self._wait_alone()
        self.runner.start()
        try:
            while not self._stopping.wait(TURN_S):
                self.runner.check()
                if self.runner.superseded:
                    raise _in_use("it began later, so this one gives way")
                self._on_turn()
        finally:
            self._stopping.set()
            if not self.runner.join(JOBS_END_WITHIN_S):
                log.warning("a job did not end with the application", within_s=JOBS_END_WITHIN_S)

    def _wait_alone(self) -> None:
        """Wait while the record of an application is young: one that was killed writes no further record."""
        first = self._live()
        if first is not None:
            log.info("an application of the scheduled jobs has not ended: waiting", silent_s_max=SILENT_MS_MAX / 1000)
        while (now := self._live()) is not None and not self._stopping.wait(TURN_S):
            if first is None or now.seen_ms != first.seen_ms:
                raise _in_use("stop it first")
            self._on_turn()

    def _live(self) -> NewestRecord | None:
        self._journal.refresh()
        newest = self._journal.view.application
        return newest if newest is not None and newest.is_live(self._clock.now_ms()) else None


def _in_use(advice: str) -> Unavailable:
    return Unavailable(
        f"another application runs the scheduled jobs of this log (`tsdb spark jobs` shows them): {advice}",
        reason="jobs_in_use",
    )

"""`tsdb spark run` runs the chunk stage's stream and the scheduled jobs in one application, and keeps the Iceberg
table; `tsdb spark scheduler` runs the jobs alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import Milliseconds, TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.spark.merge_late import DeleteAfter, MinFragments, OlderThan
from tsdb.cli.spark.pipeline import (
    STREAM_SETTINGS,
    Checkpoint,
    StreamProgress,
    Trigger,
    served,
)
from tsdb.cli.spark.running import CommonJobOptions, Conf, Master, spark_conf
from tsdb.cli.terminal.signals import stop_signals
from tsdb.config import CommonSettings
from tsdb.config.tables import SparkRunSettings, TablesFields
from tsdb.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.application.application import Application, ApplicationOptions
    from spark_backfill.application.jobs import JobOptions
    from spark_backfill.application.result import ApplicationResult, KindRuns, SchedulerResult
    from spark_backfill.application.schedule import Schedule
    from spark_backfill.application.scheduler import Scheduler
    from spark_backfill.installation import Installation
    from tsdb.log.interface import Log
    from tsdb.model.meta import MetaSettings
    from tsdb.ops.health import Details, Readiness
    from tsdb.roles.tables import Keeping

RUN_SETTINGS = (*STREAM_SETTINGS, *TablesFields.model_fields)


def _cron(text: str) -> str:
    """Check the text, and return it: cron text or `off`."""
    from spark_backfill.application.schedule import parse_schedule

    try:
        parse_schedule(text)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None
    return text


def _schedule(kind: str, help: str) -> Any:
    return typer.Option(f"--{kind}", parser=_cron, metavar="CRON", help=f"{help} Or off: only on request.")


MergeLateCron = Annotated[
    str | None, _schedule("merge-late", "When to fold late samples, in cron's form, UTC; by default '10 * * * *'.")
]
DownsampleCron = Annotated[str | None, _schedule("downsample", "When to downsample; by default '40 * * * *'.")]
VerifyCron = Annotated[
    str | None,
    _schedule("verify", "When to compare log, chunks and history since the last ok run; by default '20 3 * * *'."),
]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Values of the options of scheduled jobs. crons: text by kind; None: the default. rule: options of merge-late."""

    crons: dict[str, str | None]
    rule: dict[str, int]

    @classmethod
    def of(
        cls,
        merge_late: str | None,
        downsample: str | None,
        verify: str | None,
        min_fragments: int,
        older_than: Milliseconds | None,
        delete_after: Milliseconds | None,
    ) -> JobPlan:
        """The values of a command's options."""
        folding = {"older_than_ms": older_than, "delete_after_ms": delete_after}
        given = {name: time.ms for name, time in folding.items() if time is not None}
        crons = {"merge-late": merge_late, "downsample": downsample, "verify": verify}
        return cls(crons, {"fragments_max": min_fragments, **given})

    def checked(
        self, installation: Installation, log: Log, meta: MetaSettings
    ) -> tuple[JobOptions, dict[str, Schedule | None]]:
        """Options and schedules, after a check of all that can be checked without a session."""
        from spark_backfill.application.jobs import JobOptions
        from spark_backfill.application.journal import Journal
        from spark_backfill.application.schedule import schedules_of
        from spark_backfill.jobs.merge_late.job import MergeLateOptions
        from tsdb.model.clock import SystemClock

        build = installation.build_options(meta)
        schedules = schedules_of(self.crons, meta, build.topic_id, history=bool(build.places.history))
        Journal(log, SystemClock()).refresh()
        return JobOptions(build, meta, MergeLateOptions(apply=True, **self.rule)), schedules


@with_settings(SparkRunSettings, only=RUN_SETTINGS)
def run(
    settings: SparkRunSettings,
    checkpoint: Checkpoint = None,
    trigger: Trigger = "1s",  # type: ignore[assignment]  # parsed as if typed
    merge_late: MergeLateCron = None,
    downsample: DownsampleCron = None,
    verify: VerifyCron = None,
    min_fragments: MinFragments = 8,
    older_than: OlderThan = None,
    delete_after: DeleteAfter = None,
    master: Master = "local[*]",
    conf: Conf = None,
    output: TableOrJson = "table",
) -> None:
    """Run the data pipeline: the chunk stage as a stream, and merge-late, downsample and verify by schedules; ends on
    SIGTERM.

    The stream is that of `tsdb spark pipeline`. A failed job is reported and tried again; it never ends the stream. See
    and control the jobs with `tsdb spark jobs`. Without --history, or with an Iceberg table as history, only the stream
    and verify run. Stream and jobs share the cores: where the stream must not wait, run `tsdb spark pipeline` and `tsdb
    spark scheduler`. With --tables, the driver keeps the Iceberg table too, as a loader does.
    """
    from spark_backfill.application.application import SESSION_CONF, ApplicationOptions
    from spark_backfill.pipeline.pipeline import PipelineOptions
    from tsdb.roles.log import connect
    from tsdb.roles.tables import keeping_table, reads_table

    plan = JobPlan.of(merge_late, downsample, verify, min_fragments, older_than, delete_after)
    # Jobs read chunks, which a table does not have.
    chunks = settings.model_copy(update={"history": ""}) if reads_table(settings.history) else settings
    job = CommonJobOptions(chunks, master, {**SESSION_CONF, **spark_conf(conf)}, output)
    meta = job.installation.checked()
    with connect(settings) as log, stop_signals() as stopping:
        jobs, schedules = plan.checked(job.installation, log, meta)
        stream = PipelineOptions(jobs.build, checkpoint, trigger.ms / 1000)
        options = ApplicationOptions(stream, jobs, schedules)
        keeping = keeping_table(settings, log, meta)
        job.run("run", lambda spark: _serve(spark, log, options, keeping, settings, stopping), progress=False)


@with_settings(CommonSettings, only=STREAM_SETTINGS)
def scheduler(
    settings: CommonSettings,
    merge_late: MergeLateCron = None,
    downsample: DownsampleCron = None,
    verify: VerifyCron = None,
    min_fragments: MinFragments = 8,
    older_than: OlderThan = None,
    delete_after: DeleteAfter = None,
    master: Master = "local[*]",
    conf: Conf = None,
    output: TableOrJson = "table",
) -> None:
    """Run merge-late, downsample and verify by schedules, without the stream; ends on SIGTERM.

    For beside `tsdb spark pipeline`, or beside Python chunkers: the jobs have their own cores, so they never delay
    the chunk stage. The jobs are those of `tsdb spark run`, and `tsdb spark jobs` controls them. Waits for the end of
    another application with jobs for 3 minutes, and refuses to start beside one.
    """
    from spark_backfill.application.application import SESSION_CONF
    from tsdb.roles.log import connect

    plan = JobPlan.of(merge_late, downsample, verify, min_fragments, older_than, delete_after)
    job = CommonJobOptions(settings, master, {**SESSION_CONF, **spark_conf(conf)}, output)
    meta = job.installation.checked()
    with connect(settings) as log, stop_signals() as stopping:
        jobs, schedules = plan.checked(job.installation, log, meta)
        job.run(
            "scheduler", lambda spark: _schedule_jobs(spark, log, jobs, schedules, settings, stopping), progress=False
        )


def _schedule_jobs(
    spark: SparkSession,
    log: Log,
    jobs: JobOptions,
    schedules: dict[str, Schedule | None],
    settings: CommonSettings,
    stopping: threading.Event,
) -> SchedulerResult:
    from spark_backfill.application.jobs_alone import JobsAlone
    from spark_backfill.application.result import SchedulerResult
    from tsdb.model.clock import SystemClock
    from tsdb.ops.health import Readiness

    running = JobsAlone(spark, log, jobs, schedules, SystemClock(), stopping=stopping)

    def readiness() -> Readiness:
        return Readiness("" if running.runner.is_started else "starting", {}, jobs=_job_states(running.scheduler))

    with served(settings, readiness):
        running.run()
    return SchedulerResult(rows=_rows(running.scheduler))


def _serve(
    spark: SparkSession,
    log: Log,
    options: ApplicationOptions,
    keeping: Keeping,
    settings: CommonSettings,
    stopping: threading.Event,
) -> ApplicationResult:
    from spark_backfill.application.application import Application
    from spark_backfill.application.result import ApplicationResult
    from spark_backfill.pipeline.group_membership import GroupMembership
    from tsdb.model.clock import SystemClock

    clock = SystemClock()
    progress = StreamProgress()

    def on_turn() -> None:
        progress.show(running.pipeline)

    running = Application(spark, log, options, clock, on_turn, stopping, keeping.components)
    with served(settings, _readiness(running, keeping)):
        totals = running.run(GroupMembership(log, clock))
    sums: dict[str, Any] = totals.sums
    return ApplicationResult(batches=totals.batches, items=totals.items, rows=_rows(running.scheduler), **sums)


def _readiness(running: Application, keeping: Keeping) -> Callable[[], Readiness]:
    from spark_backfill.pipeline.pipeline import pipeline_health
    from tsdb.ops.health import Readiness

    def readiness() -> Readiness:
        pipeline = running.pipeline
        reason, message = keeping.problem() if pipeline.committed else ("starting", "")
        return Readiness(reason, pipeline_health(pipeline), message, jobs=_job_states(running.scheduler))

    return readiness


def _job_states(scheduler: Scheduler) -> dict[str, Details]:
    """Health of each kind of job."""
    from spark_backfill.application.health import job_health

    jobs = {}
    for kind in scheduler.kinds:
        due = scheduler.next_due(kind)
        jobs[kind] = job_health(scheduler.state(kind), due.at_ms if due else None)
    return jobs


def _rows(scheduler: Scheduler) -> tuple[KindRuns, ...]:
    """Runs that ended in this application, a row for each kind."""
    from spark_backfill.application.result import KindRuns
    from spark_backfill.application.runs import RunResult

    results = scheduler.results
    return tuple(
        KindRuns(kind, **{result.value: results[kind, result] for result in RunResult}) for kind in scheduler.kinds
    )

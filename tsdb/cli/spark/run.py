"""`tsdb spark run` runs the chunk stage's stream and the scheduled jobs in one application."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
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
from tsdb.model.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.application.application import Application, ApplicationOptions
    from spark_backfill.application.result import ApplicationResult, KindRuns
    from spark_backfill.installation import Installation
    from tsdb.log.interface import Log
    from tsdb.model.meta import MetaSettings
    from tsdb.ops.health import Readiness


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


@with_settings(CommonSettings, only=STREAM_SETTINGS)
def run(
    settings: CommonSettings,
    checkpoint: Checkpoint = None,
    trigger: Trigger = "1s",  # type: ignore[assignment]  # parsed as if typed
    merge_late: Annotated[
        str | None, _schedule("merge-late", "When to fold late samples, in cron's form, UTC; by default '10 * * * *'.")
    ] = None,
    downsample: Annotated[str | None, _schedule("downsample", "When to downsample; by default '40 * * * *'.")] = None,
    verify: Annotated[
        str | None,
        _schedule("verify", "When to compare log, chunks and history since the last ok run; by default '20 3 * * *'."),
    ] = None,
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
    and control the jobs with `tsdb spark jobs`. Without --history only the stream and verify run.
    """
    from spark_backfill.application.application import SESSION_CONF
    from tsdb.roles.log import connect

    given = {"merge-late": merge_late, "downsample": downsample, "verify": verify}
    folding = {"older_than_ms": older_than, "delete_after_ms": delete_after}
    rule = {"fragments_max": min_fragments, **{name: time.ms for name, time in folding.items() if time is not None}}
    job = CommonJobOptions(settings, master, {**SESSION_CONF, **spark_conf(conf)}, output)
    meta = job.installation.checked()
    with connect(settings) as log, stop_signals() as stopping:
        options = _options(job.installation, log, meta, given, rule, checkpoint, trigger.ms / 1000)
        job.run("run", lambda spark: _serve(spark, log, options, settings, stopping), progress=False)


def _options(
    installation: Installation,
    log: Log,
    meta: MetaSettings,
    given: dict[str, str | None],
    rule: dict[str, int],
    checkpoint: str | None,
    trigger_s: float,
) -> ApplicationOptions:
    """Options, after a check of all that can be checked without a session."""
    from spark_backfill.application.application import ApplicationOptions
    from spark_backfill.application.jobs import JobOptions
    from spark_backfill.application.journal import Journal
    from spark_backfill.application.schedule import schedules_of
    from spark_backfill.jobs.merge_late.job import MergeLateOptions
    from spark_backfill.pipeline.pipeline import PipelineOptions
    from tsdb.model.clock import SystemClock

    build = installation.build_options(meta)
    schedules = schedules_of(given, meta, build.topic_id, history=bool(build.places.history))
    Journal(log, SystemClock()).refresh()
    jobs = JobOptions(build, meta, MergeLateOptions(apply=True, **rule))
    return ApplicationOptions(PipelineOptions(build, checkpoint, trigger_s), jobs, schedules)


def _serve(
    spark: SparkSession, log: Log, options: ApplicationOptions, settings: CommonSettings, stopping: threading.Event
) -> ApplicationResult:
    from spark_backfill.application.application import Application
    from spark_backfill.application.result import ApplicationResult
    from spark_backfill.pipeline.group_membership import GroupMembership
    from tsdb.model.clock import SystemClock

    clock = SystemClock()
    progress = StreamProgress()

    def on_turn() -> None:
        progress.show(running.pipeline)

    running = Application(spark, log, options, clock, on_turn, stopping)
    with served(settings, _readiness(running)):
        totals = running.run(GroupMembership(log, clock))
    sums: dict[str, Any] = totals.sums
    return ApplicationResult(batches=totals.batches, items=totals.items, rows=_rows(running), **sums)


def _readiness(running: Application) -> Callable[[], Readiness]:
    from spark_backfill.application.health import job_health
    from spark_backfill.pipeline.pipeline import pipeline_health
    from tsdb.ops.health import Readiness

    def readiness() -> Readiness:
        scheduler = running.scheduler
        jobs = {}
        for kind in scheduler.kinds:
            due = scheduler.next_due(kind)
            jobs[kind] = job_health(scheduler.state(kind), due.at_ms if due else None)
        pipeline = running.pipeline
        return Readiness("" if pipeline.committed else "starting", pipeline_health(pipeline), jobs=jobs)

    return readiness


def _rows(running: Application) -> tuple[KindRuns, ...]:
    """Runs that ended in this application, a row for each kind."""
    from spark_backfill.application.result import KindRuns
    from spark_backfill.application.runs import RunResult

    results = running.scheduler.results
    return tuple(
        KindRuns(kind, **{result.value: results[kind, result] for result in RunResult})
        for kind in running.scheduler.kinds
    )

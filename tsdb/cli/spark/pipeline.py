"""`tsdb spark pipeline` runs the chunk stage as a Structured Streaming job, with the probes and metrics of a role."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.spark.running import CommonJobOptions, Conf, Master, spark_conf
from tsdb.cli.spark.streaming import (
    STREAM_SETTINGS,
    Checkpoint,
    StreamProgress,
    Trigger,
    served,
)
from tsdb.cli.terminal.signals import stop_signals
from tsdb.config import CommonSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.pipeline.pipeline import PipelineOptions
    from spark_backfill.pipeline.result import PipelineResult
    from tsdb.log.interface import Log


@with_settings(CommonSettings, only=STREAM_SETTINGS)
def pipeline(
    settings: CommonSettings,
    checkpoint: Checkpoint,
    trigger: Trigger = "1s",  # type: ignore[assignment]  # parsed as if typed
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process all current records of the log, and end.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    output: TableOrJson = "table",
) -> None:
    """Turn the log into chunks on Spark, in place of all chunkers. Runs until SIGTERM.

    Continues where a chunker or another pipeline stopped, and refuses to start while one runs. Ends with exit code 1
    when a chunker joins.

    """
    from spark_backfill.pipeline.pipeline import PipelineOptions
    from tsdb.roles.log import connect

    run = CommonJobOptions(settings, master, spark_conf(conf), output)
    build = run.installation.build_options(run.installation.checked())
    options = PipelineOptions(build, checkpoint, None if available_now else trigger.ms / 1000)
    with connect(settings) as log, stop_signals() as stopping:
        run.run("pipeline", lambda spark: _serve(spark, log, options, settings, stopping), progress=False)


def _serve(
    spark: SparkSession, log: Log, options: PipelineOptions, settings: CommonSettings, stopping: threading.Event
) -> PipelineResult:
    from spark_backfill.pipeline.group_membership import GroupMembership
    from spark_backfill.pipeline.health import pipeline_health
    from spark_backfill.pipeline.pipeline import Pipeline
    from spark_backfill.pipeline.result import PipelineResult
    from tsdb.model.clock import SystemClock
    from tsdb.ops.health import Readiness

    clock = SystemClock()
    progress = StreamProgress()

    def on_turn() -> None:
        progress.show(running)

    running = Pipeline(spark, log, options, clock, on_turn, stopping)
    with served(settings, lambda: Readiness("" if running.committed else "starting", pipeline_health(running))):
        totals = running.run(GroupMembership(log, clock))
    sums: dict[str, Any] = totals.sums
    return PipelineResult(batches=totals.batches, items=totals.items, **sums)

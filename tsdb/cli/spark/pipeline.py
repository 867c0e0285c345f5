"""`tsdb spark pipeline` runs the chunk stage as a Structured Streaming job, with the probes and metrics of a role.

Has the parts of `tsdb spark pipeline` and `tsdb spark run`: options, signals, probes and lines of progress.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.spark.running import CommonJobOptions, Conf, Master, spark_conf
from tsdb.cli.terminal.output import note
from tsdb.cli.terminal.progress import PLAIN_EVERY_S
from tsdb.cli.terminal.signals import stop_signals
from tsdb.config import CommonSettings
from tsdb.config.load import SPARK_SETTINGS

if TYPE_CHECKING:
    from spark_backfill.pipeline.pipeline import Pipeline
    from tsdb.ops.health import Readiness
    from tsdb.ops.http.server import OpsServer

STREAM_SETTINGS = (
    *SPARK_SETTINGS,
    *("http", "token_file", "insecure_listen"),
    *(name for name in CommonSettings.model_fields if name.startswith("tls_")),
)

Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        help="Folder of this stream only, as a URL; by default one on the driver's machine, deleted at the end.",
    ),
]
Trigger = Annotated[
    Milliseconds,
    typer.Option("--trigger", parser=duration, metavar="DURATION", help="Interval between the starts of batches."),
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.pipeline.pipeline import PipelineOptions
    from spark_backfill.pipeline.result import PipelineResult
    from tsdb.log.interface import Log


def served(settings: CommonSettings, readiness: Callable[[], Readiness]) -> OpsServer:
    """Serve the probes and metrics of the driver; a context manager."""
    from tsdb.ops.health import Liveness
    from tsdb.ops.http.server import serve_ops
    from tsdb.roles.servers import http_limits, server_tls, server_tokens

    listen = settings.http_listen
    return serve_ops(
        listen.host,
        listen.port,
        readiness,
        Liveness,
        tls=server_tls(settings),
        tokens=server_tokens(settings, listen),
        limits=http_limits(settings),
    )


class StreamProgress:
    """Prints a line on stderr at most every `every_s` seconds, and only after a new batch."""

    def __init__(self, every_s: float = PLAIN_EVERY_S, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._every_s = every_s
        self._monotonic = monotonic
        self._due = monotonic()
        self._shown = 0

    def show(self, running: Pipeline) -> None:
        """Print the line if it is due. Called after each turn of the pipeline."""
        totals, now = running.totals, self._monotonic()
        if totals.batches == self._shown or now < self._due:
            return
        self._shown, self._due = totals.batches, now + self._every_s
        chunks, lag = totals.sums["base_chunks"] + totals.sums["late_chunks"], running.lag_records
        done = f"{totals.batches} batches, {totals.sums['windows']} windows, {chunks} chunks"
        note(f"pipeline: {done}, {lag} records behind")


@with_settings(CommonSettings, only=STREAM_SETTINGS)
def pipeline(
    settings: CommonSettings,
    checkpoint: Checkpoint = None,
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
    from spark_backfill.pipeline.pipeline import Pipeline, pipeline_health
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

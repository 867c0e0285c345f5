"""`tsdb spark pipeline`: the chunk stage as a Structured Streaming job, with the probes and metrics of a role."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.spark.opening import SPARK_SETTINGS
from tsdb.cli.spark.running import Conf, JobRun, Master, spark_conf
from tsdb.cli.terminal.output import note
from tsdb.cli.terminal.progress import PLAIN_EVERY_S
from tsdb.config import CommonSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions
    from spark_backfill.summary import JobSummary
    from tsdb.log.interface import Log
    from tsdb.ops.http.server import OpsServer

SETTINGS = (
    *SPARK_SETTINGS,
    *("http", "token_file"),
    *(name for name in CommonSettings.model_fields if name.startswith("tls_")),
)


@with_settings(CommonSettings, only=SETTINGS)
def pipeline(
    settings: CommonSettings,
    checkpoint: Annotated[
        str,
        typer.Option("--checkpoint", help="Folder of this pipeline only, as a URL that the whole cluster can reach."),
    ],
    trigger: Annotated[
        Milliseconds,
        typer.Option("--trigger", parser=duration, metavar="DURATION", help="Interval between the starts of batches."),
    ] = "10s",  # type: ignore[assignment]  # parsed as if typed
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process all current records of the log, and end.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    output: TableOrJson = "table",
) -> None:
    """Turn the log into chunks on Spark, in place of all chunkers; ends on SIGTERM.

    Continues where a chunker or another pipeline stopped, and refuses to start while one runs. Ends with exit code 1
    when a chunker joins.
    """
    from spark_backfill.pipeline.pipeline import PipelineOptions
    from tsdb.cli.spark.building import build_options
    from tsdb.roles.log import connect

    run = JobRun(settings, master, spark_conf(conf), output)
    shared = run.checked()
    options = PipelineOptions(
        build_options(run.places, shared), checkpoint, None if available_now else trigger.ms / 1000
    )
    with connect(settings) as log, _signals() as stopping:
        run.run("pipeline", lambda spark: _serve(spark, log, options, settings, stopping), progress=False)


def _serve(
    spark: SparkSession, log: Log, options: PipelineOptions, settings: CommonSettings, stopping: threading.Event
) -> JobSummary:
    from spark_backfill.pipeline.group_membership import GroupMembership
    from spark_backfill.pipeline.pipeline import Pipeline
    from spark_backfill.summary import JobSummary
    from tsdb.model.clock import SystemClock

    clock = SystemClock()
    progress = StreamProgress()

    def on_turn() -> None:
        progress.show(running)
        if stopping.is_set():
            running.stop()

    running = Pipeline(spark, log, options, clock, on_turn)
    if stopping.is_set():
        running.stop()
    with _ops(running, settings):
        totals = running.run(GroupMembership(log, clock))
    return JobSummary("pipeline", figures={"batches": totals.batches, "items": totals.items, **totals.sums})


def _ops(running: Pipeline, settings: CommonSettings) -> OpsServer:
    from spark_backfill.pipeline.health import pipeline_health
    from tsdb.ops.health import Liveness, Readiness
    from tsdb.ops.http.server import serve_ops
    from tsdb.roles.servers import http_limits, server_tls, server_tokens

    listen = settings.http_listen
    return serve_ops(
        listen.host,
        listen.port,
        lambda: Readiness("" if running.committed else "starting", pipeline_health(running)),
        Liveness,
        tls=server_tls(settings),
        tokens=server_tokens(settings),
        limits=http_limits(settings),
    )


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set. Installed before the session starts, so that an early signal counts."""
    stopping = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in numbers}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

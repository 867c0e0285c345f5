"""`tsdb spark pipeline`: the chunk stage as a Structured Streaming job, with the probes and metrics of a role."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.setting_options import with_settings
from tsdb.cli.spark.opening import SPARK_SETTINGS
from tsdb.cli.spark.running import Conf, JobRun, Master, spark_conf
from tsdb.config import CommonSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.pipeline.pipeline import Pipeline, PipelineOptions
    from spark_backfill.summary import JobSummary
    from tsdb.log.interface import Log
    from tsdb.ops.http import OpsServer

SETTINGS = (
    *SPARK_SETTINGS,
    *("http", "token_file"),
    *(name for name in CommonSettings.model_fields if name.startswith("tls_")),
)


@with_settings(CommonSettings, only=SETTINGS)
def pipeline(
    settings: CommonSettings,
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", help="Folder of this pipeline alone, as a URL that all of the cluster reach.")
    ],
    trigger: Annotated[
        Milliseconds,
        typer.Option("--trigger", parser=duration, metavar="DURATION", help="How often a batch begins."),
    ] = "10s",  # type: ignore[assignment]  # parsed as if typed
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Do all that the log holds now, and end.")
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    output: TableOrJson = "table",
) -> None:
    """Turn the log into chunks on Spark, in place of every chunker; ends on SIGTERM.

    Goes on where a chunker or another pipeline stopped, and refuses while one runs. Gives way, with exit code 1, when a
    chunker joins.
    """
    from spark_backfill.pipeline.pipeline import PipelineOptions
    from tsdb.cli.assemble import connect
    from tsdb.cli.spark.building import build_options

    run = JobRun(settings, master, spark_conf(conf), output)
    shared = run.checked()
    options = PipelineOptions(
        build_options(run.places, shared), checkpoint, None if available_now else trigger.ms / 1000
    )
    with connect(settings) as log:
        run.run("pipeline", lambda spark: _serve(spark, log, options, settings), progress=False)


def _serve(spark: SparkSession, log: Log, options: PipelineOptions, settings: CommonSettings) -> JobSummary:
    from spark_backfill.pipeline.fence import Fence
    from spark_backfill.pipeline.pipeline import Pipeline
    from spark_backfill.summary import JobSummary
    from tsdb.model.clock import SystemClock

    clock = SystemClock()
    running = Pipeline(spark, log, options, clock)
    with _ops(running, settings), _stopped_by_signals(running):
        totals = running.run(Fence(log, clock))
    return JobSummary("pipeline", figures={"batches": totals.batches, "items": totals.items, **totals.sums})


def _ops(running: Pipeline, settings: CommonSettings) -> OpsServer:
    from tsdb.cli.assemble import http_limits, server_tls, server_tokens
    from tsdb.ops.health import Liveness, Readiness
    from tsdb.ops.http import serve_ops

    listen = settings.http_listen
    return serve_ops(
        listen.host,
        listen.port,
        lambda: Readiness("" if running.committed else "starting"),
        Liveness,
        tls=server_tls(settings),
        tokens=server_tokens(settings),
        limits=http_limits(settings),
    )


@contextmanager
def _stopped_by_signals(running: Pipeline) -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: running.stop()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

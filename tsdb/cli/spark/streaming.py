"""Has the parts of `tsdb spark pipeline` and `tsdb spark run`: options, signals, probes and lines of progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration
from tsdb.cli.terminal.output import note
from tsdb.cli.terminal.progress import PLAIN_EVERY_S
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
    str,
    typer.Option("--checkpoint", help="Folder of this stream only, as a URL that the whole cluster can reach."),
]
Trigger = Annotated[
    Milliseconds,
    typer.Option("--trigger", parser=duration, metavar="DURATION", help="Interval between the starts of batches."),
]


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

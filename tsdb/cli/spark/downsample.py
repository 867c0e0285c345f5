"""`tsdb spark downsample`: makes series of lower resolution from history."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration, instant
from tsdb.cli.spark.running import CommonJobOptions, spark_job


@spark_job
def downsample(
    run: CommonJobOptions,
    start: Annotated[
        Milliseconds | None,
        typer.Option("--from", parser=instant, metavar="TIME", help="Start of the range; by default all of history."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the number of windows to make.")] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Make all windows again, as after an import that ran beside another run.")
    ] = False,
    loader_timeout: Annotated[
        Milliseconds | None,
        typer.Option(
            "--loader-timeout",
            parser=duration,
            metavar="DURATION",
            help="Longest wait for chunk stage and loader, before and after; by default 15 m.",
        ),
    ] = None,
) -> None:
    """Make series of 5 minutes and of an hour from history, for windows that are new or got late data.

    Makes count, sum, min, max, last and increase of every series, with the labels __resolution__ and __aggr__. Data
    younger than the least hold and a day is left out. Queries use these series with --downsampled.
    Exit code 1: some windows are corrupt.
    """
    from spark_backfill.jobs.downsample.job import DownsampleOptions
    from spark_backfill.jobs.downsample.job import downsample as job

    timeout = {} if loader_timeout is None else {"loader_timeout_ms": loader_timeout.ms}
    options = DownsampleOptions(start.ms if start else None, dry_run, again, **timeout)
    installation = run.installation
    meta = installation.checked(history=True)
    run.run("downsample", lambda session: job(session, installation.places, meta, options))

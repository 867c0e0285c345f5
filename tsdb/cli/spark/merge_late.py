"""`tsdb spark merge-late`: folds the fragments of windows and deletes folded rows."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration, instant
from tsdb.cli.spark.running import CommonJobOptions, spark_job

MinFragments = Annotated[
    int, typer.Option("--min-fragments", min=1, help="Fold a pack's window that has more fragments than this.")
]
OlderThan = Annotated[
    Milliseconds | None,
    typer.Option(
        "--older-than",
        parser=duration,
        metavar="DURATION",
        help="Fold any window that ended this long ago; by default 7 d.",
    ),
]
DeleteAfter = Annotated[
    Milliseconds | None,
    typer.Option(
        "--delete-after",
        parser=duration,
        metavar="DURATION",
        help="Time from the check of a fold to the deletion of the rows that it covers; by default 1 h. No read may"
        " take longer.",
    ),
]


@spark_job
def merge_late(
    run: CommonJobOptions,
    apply: Annotated[bool, typer.Option("--apply", help="Write; without it, only print the plan.")] = False,
    min_fragments: MinFragments = 8,
    older_than: OlderThan = None,
    delete_after: DeleteAfter = None,
    start: Annotated[
        Milliseconds | None,
        typer.Option("--from", parser=instant, metavar="TIME", help="Start of the range; by default all of history."),
    ] = None,
    end: Annotated[
        Milliseconds | None,
        typer.Option("--to", parser=instant, metavar="TIME", help="End of the range; by default all of history."),
    ] = None,
    loader_timeout: Annotated[
        Milliseconds | None,
        typer.Option(
            "--loader-timeout",
            parser=duration,
            metavar="DURATION",
            help="Longest wait for the loader; by default 15 m.",
        ),
    ] = None,
) -> None:
    """Fold windows of many fragments into one fragment each, and delete the rows that earlier folds cover.

    The first run with --apply writes folds and reads them back. A run at least --delete-after later deletes the covered
    rows. Answers do not change. Exit code 1: some window could not be folded, or some row not deleted.
    """
    from spark_backfill.jobs.merge_late.job import MergeLateOptions
    from spark_backfill.jobs.merge_late.job import merge_late as job

    times = {
        "older_than_ms": older_than,
        "delete_after_ms": delete_after,
        "start_ms": start,
        "end_ms": end,
        "loader_timeout_ms": loader_timeout,
    }
    given = {name: time.ms for name, time in times.items() if time is not None}
    options = MergeLateOptions(apply=apply, fragments_max=min_fragments, **given)
    installation = run.installation
    meta = installation.checked(history=True)
    rerun = "--apply" if apply else ""
    run.run("merge-late", lambda session: job(session, installation.places, meta, options), rerun=rerun)

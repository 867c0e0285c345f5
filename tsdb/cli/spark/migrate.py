"""`tsdb spark migrate`: copies a history to another one, and compares both."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.spark.running import CommonJobOptions, spark_job
from tsdb.cli.terminal.output import note


@spark_job
def migrate(
    run: CommonJobOptions,
    to: Annotated[
        str,
        typer.Option("--to", metavar="URL", help="The target, an empty history that `tsdb history create` made."),
    ],
    load_group: Annotated[
        str | None, typer.Option("--load-group", help="Group of the source's loaders, if it is not the default.")
    ] = None,
    job_id: Annotated[
        str | None,
        typer.Option("--job-id", help="Id of the migration; the id of an interrupted run continues that run."),
    ] = None,
) -> None:
    """Copy all of history to another one, of any kind, while all roles run; then compare both to the bit.

    The connection settings are those of --history. Afterwards a loader of the target brings what came since.
    Exit code 1 for a difference, or for a chunk that does not decode.
    """
    from spark_backfill.jobs.migrate.job import MigrateOptions, check_target
    from spark_backfill.jobs.migrate.job import migrate as job
    from spark_backfill.writing.import_run import check_job_id, new_job_id
    from tsdb.history.loader.loader import GROUP

    options = MigrateOptions(to, load_group or GROUP, check_job_id(job_id) if job_id else new_job_id())
    installation = run.installation
    meta = installation.checked(history=True)
    check_target(installation.places, to, meta)
    note(f"migrate: job id {options.job_id}; with --job-id an interrupted run is continued")
    run.run("migrate", lambda spark: job(spark, installation.places, meta, options), rerun=f"--job-id {options.job_id}")

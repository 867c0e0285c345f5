"""`tsdb spark import`: imports files of any layout, and blocks of Prometheus, into history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tsdb.cli.options.arguments import LoaderWait
from tsdb.cli.options.layout import with_columns
from tsdb.cli.spark.running import CommonJobOptions, spark_job
from tsdb.model.import_layout import ColumnNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult

Format = Literal["parquet", "csv", "jsonl", "prometheus"]


@spark_job
@with_columns
def import_files(
    run: CommonJobOptions,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files or folders, as Spark paths; for prometheus: blocks."),
    ],
    format: Annotated[Format, typer.Option("--format", help="Format of the files.")] = "parquet",
    round_times: Annotated[
        bool,
        typer.Option("--round-times", help="Round times finer than a millisecond down; else such rows are refused."),
    ] = False,
    *,
    columns: ColumnNames,
    rejects: Annotated[
        str | None, typer.Option("--rejects", help="Folder for refused rows, with the reason of each.")
    ] = None,
    allow_rejects: Annotated[bool, typer.Option("--allow-rejects", help="Exit code 0 even with refused rows.")] = False,
    wait: LoaderWait = None,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="End once the log has all chunks, while loaders continue. Ranges queried before may lack them until a"
            " run that waits.",
        ),
    ] = False,
    job_id: Annotated[
        str | None, typer.Option("--job-id", help="Id of the import; the id of a failed run continues that run.")
    ] = None,
) -> None:
    """Import files into history: samples older than the shortest hold and a day; write newer ones to a gateway.

    Exit code 1 when a row was refused, unless --allow-rejects is given; the other rows are imported.
    """
    from spark_backfill.jobs.imports.job import ImportOptions
    from spark_backfill.jobs.imports.job import import_files as import_all
    from spark_backfill.writing.import_run import check_job_id, new_job_id

    layout = columns.layout(format, round_times=round_times)
    given_s = wait.ms / 1000 if wait else ImportOptions("").wait_s
    options = ImportOptions(
        check_job_id(job_id) if job_id else new_job_id(),
        rejects=rejects or "",
        allow_rejects=allow_rejects,
        wait_s=None if no_wait else given_s,
    )
    installation = run.installation
    shared = installation.checked()

    def job(spark: SparkSession) -> JobResult:
        return import_all(spark, paths, layout, installation.places, shared, options)

    run.run("import", job, rerun=f"--job-id {options.job_id}")

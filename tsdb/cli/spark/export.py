"""`tsdb spark export` writes history as Parquet files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import End, Last, OptionalSelectorArgument, Start, time_range
from tsdb.cli.spark.running import CommonJobOptions, spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult


@spark_job
def export(
    run: CommonJobOptions,
    folder: Annotated[str, typer.Option("--to", metavar="FOLDER", help="Folder for the files, as a Spark path.")],
    matching: OptionalSelectorArgument = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Export even when history does not have the whole range yet.")
    ] = False,
    allow_holes: Annotated[bool, typer.Option("--allow-holes", help="Export in spite of named losses.")] = False,
    splits: Annotated[int, typer.Option("--splits", min=1, help="Approximate number of reading tasks.")] = 32,
) -> None:
    """Export history as Parquet, one folder for each day: labels as JSON text, ts_ms, value.

    `tsdb write` and imports read these files.
    """
    from spark_backfill.jobs.exports.job import ExportOptions
    from spark_backfill.jobs.exports.job import export as export_all
    from spark_backfill.source.options import TimeSpan

    within = time_range(start, end, last)
    span = TimeSpan(within.start_ms, within.end_ms) if within else TimeSpan()
    options = ExportOptions(folder, matching or "", span, overwrite, partial, allow_holes, splits)
    installation = run.installation
    installation.checked(history=True)

    def job(spark: SparkSession) -> JobResult:
        return export_all(spark, installation.places, options)

    # A failed run leaves a partial folder, which a rerun must overwrite.
    run.run("export", job, rerun="--overwrite")

"""`tsdb spark import`: imports files of any layout, and blocks of Prometheus, into history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tsdb.cli.options.arguments import Milliseconds, duration
from tsdb.cli.spark.running import CommonJobOptions, spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult

Format = Literal["parquet", "csv", "jsonl", "prometheus"]
Unit = Literal["ms", "s", "us", "ns", "iso"]


@spark_job
def import_files(
    run: CommonJobOptions,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files or folders, as Spark paths; for prometheus: blocks."),
    ],
    format: Annotated[Format, typer.Option("--format", help="Format of the files.")] = "parquet",
    labels: Annotated[
        str, typer.Option("--labels", help="Column with all labels: JSON text, a map or a struct; empty: none.")
    ] = "labels",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="LABEL=COLUMN", help="A label from a column; may be repeated."),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option("--constant", metavar="LABEL=VALUE", help="A label of every sample; may be repeated."),
    ] = None,
    time: Annotated[str, typer.Option("--time", help="Column of times.")] = "ts_ms",
    round_times: Annotated[
        bool,
        typer.Option("--round-times", help="Round times finer than a millisecond down; else such rows are refused."),
    ] = False,
    time_unit: Annotated[Unit, typer.Option("--time-unit", help="Unit of times given as numbers or text.")] = "ms",
    value: Annotated[str, typer.Option("--value", help="Column of values.")] = "value",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="COLUMN", help="A column with the values of a metric; instead of --value."),
    ] = None,
    rejects: Annotated[
        str | None, typer.Option("--rejects", help="Folder for refused rows, with the reason of each.")
    ] = None,
    allow_rejects: Annotated[bool, typer.Option("--allow-rejects", help="Exit code 0 even with refused rows.")] = False,
    wait: Annotated[
        Milliseconds | None,
        typer.Option(
            "--wait",
            parser=duration,
            metavar="DURATION",
            help="Longest wait for the loader, at the end; by default 10m.",
        ),
    ] = None,
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
    from spark_backfill.jobs.imports.layout import ImportLayout
    from spark_backfill.writing.import_run import check_job_id, new_job_id

    layout = ImportLayout(
        format,
        labels,
        tuple(_pair("--label", text) for text in label or []),
        tuple(_pair("--constant", text) for text in constant or []),
        time,
        time_unit,
        value,
        tuple(metric or []),
        round_times,
    )
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


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{option} {text!r} is not NAME=VALUE")
    return name, value

"""`tsdb spark verify`: compares the log, `chunks` and history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration
from tsdb.cli.spark.building import From, Packs, To, build_options, pack_ids
from tsdb.cli.spark.running import JobRun, spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.summary import JobSummary


@spark_job
def verify(
    run: JobRun,
    start: From,
    end: To,
    pack: Packs = None,
    report: Annotated[Path | None, typer.Option("--report", help="File for the report, one JSON object.")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write differing chunks again, wait for the loader, and compare again.")
    ] = False,
    wait: Annotated[
        Milliseconds,
        typer.Option("--wait", parser=duration, metavar="DURATION", help="Longest wait for the loader, with --repair."),
    ] = "10m",  # type: ignore[assignment]  # parsed as if typed
) -> None:
    """Compare the log with `chunks` and history: missing, differing and extra chunks, by pack and window.

    Exit code 1 for any difference; with --repair, for a difference after the repair. Without --history only `chunks` is
    compared.
    """
    from spark_backfill.building.plan import range_of
    from spark_backfill.verify.job import VerifyOptions
    from spark_backfill.verify.job import verify as compare_all

    shared = run.checked()
    options = VerifyOptions(
        range_of(start.ms, end.ms, shared.time_set.window_ms),
        pack_ids(pack),
        history=bool(run.places.history),
        mend=repair,
        loader_timeout_s=wait.ms / 1000,
    )
    build = build_options(run.places, shared)

    def job(spark: SparkSession) -> JobSummary:
        summary = compare_all(spark, build, options)
        if report is not None:
            report.write_text(json.dumps(summary.as_dict()) + "\n")
        return summary

    run.run("verify", job, rerun=f"--from {start.ms} --to {end.ms}")

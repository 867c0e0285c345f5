"""`tsdb spark verify`: compares the log, `chunks` and history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration
from tsdb.cli.spark.building import From, Packs, To, pack_ids
from tsdb.cli.spark.running import CommonJobOptions, spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult


@spark_job
def verify(
    run: CommonJobOptions,
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
    from spark_backfill.jobs.verify.job import VerifyOptions
    from spark_backfill.jobs.verify.job import verify as compare_all

    installation = run.installation
    shared = installation.checked()
    options = VerifyOptions(
        range_of(start.ms, end.ms, shared.time_set.window_ms),
        pack_ids(pack),
        history=bool(run.settings.history),
        mend=repair,
        loader_timeout_s=wait.ms / 1000,
    )
    build = installation.build_options(shared)

    def job(spark: SparkSession) -> JobResult:
        result = compare_all(spark, build, options)
        if report is not None:
            report.write_text(json.dumps(result.as_dict()) + "\n")
        return result

    run.run("verify", job, rerun=f"--from {start.ms} --to {end.ms}")

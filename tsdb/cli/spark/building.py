"""Options that the jobs share which build chunks from the log: range of windows and packs.

`tsdb spark rebuild`: builds the chunks of a range of windows from the log again.

`tsdb spark verify`: compares the log, `chunks` and history.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, duration, instant
from tsdb.cli.spark.running import CommonJobOptions, spark_job
from tsdb.cli.terminal.output import note
from tsdb.model.errors import InvalidRequest

From = Annotated[
    Milliseconds, typer.Option("--from", parser=instant, metavar="TIME", help="Start of the first window.")
]
To = Annotated[Milliseconds, typer.Option("--to", parser=instant, metavar="TIME", help="End of the last window.")]
Packs = Annotated[
    list[str] | None,
    typer.Option("--pack", metavar="HEX", help="Only this pack, as in `tsdb chunks dump`; may be repeated."),
]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult


def pack_ids(given: list[str] | None) -> frozenset[int] | None:
    """The ids of the given packs; None for all packs. Raises BadParameter."""
    from spark_backfill.arguments import pack_ids as parsed

    try:
        return parsed(given)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None


@spark_job
def rebuild(
    run: CommonJobOptions,
    start: From,
    end: To,
    pack: Packs = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Write nothing; compare with `chunks`. Exit code 1 for a difference.")
    ] = False,
    job_id: Annotated[
        str | None, typer.Option("--job-id", help="Id of the rebuild; the id of an interrupted run continues that run.")
    ] = None,
) -> None:
    """Build the chunks of whole windows again, base and late, and write them under their existing keys.

    With --history, windows that the log no longer has are copied from there. With --pack no window marker is written,
    because it counts all packs.
    """
    from spark_backfill.building.plan import range_of
    from spark_backfill.jobs.rebuild.job import rebuild as rebuild_all
    from spark_backfill.jobs.verify.compare import compare as compare_all
    from spark_backfill.writing.import_run import check_job_id, new_job_id

    run_id = check_job_id(job_id) if job_id else new_job_id()
    installation = run.installation
    shared = installation.checked()
    windows, packs = range_of(start.ms, end.ms, shared.time_set.window_ms), pack_ids(pack)
    options = installation.build_options(shared)

    def job(spark: SparkSession) -> JobResult:
        if compare:
            return compare_all(spark, options, windows, packs)
        note(f"rebuild: job id {run_id}; with --job-id an interrupted run is continued")
        return rebuild_all(spark, options, windows, packs, run_id)

    run.run("rebuild", job, rerun=f"--from {start.ms} --to {end.ms}" + ("" if compare else f" --job-id {run_id}"))


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

"""`tsdb spark rebuild`: builds the chunks of a range of windows from the log again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.spark.building import From, Packs, To, pack_ids
from tsdb.cli.spark.running import CommonJobOptions, spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult


@spark_job
def rebuild(
    run: CommonJobOptions,
    start: From,
    end: To,
    pack: Packs = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Write nothing; compare with `chunks`. Exit code 1 for a difference.")
    ] = False,
) -> None:
    """Build the chunks of whole windows again, base and late, and write them under their existing keys.

    With --pack no window marker is written, because it counts all packs.
    """
    from spark_backfill.building.plan import range_of
    from spark_backfill.jobs.rebuild.job import rebuild as rebuild_all
    from spark_backfill.jobs.verify.compare import compare as compare_all

    installation = run.installation
    shared = installation.checked()
    windows, packs = range_of(start.ms, end.ms, shared.time_set.window_ms), pack_ids(pack)
    options = installation.build_options(shared)

    def job(spark: SparkSession) -> JobResult:
        if compare:
            return compare_all(spark, options, windows, packs)
        return rebuild_all(spark, options, windows, packs)

    run.run("rebuild", job, rerun=f"--from {start.ms} --to {end.ms}")

"""`tsdb spark rules`: evaluates rule files over history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import EnableFeature, LoaderWait, Milliseconds, duration, instant
from tsdb.cli.spark.running import CommonJobOptions, spark_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_backfill.result import JobResult


@spark_job
def rules(
    run: CommonJobOptions,
    files: Annotated[
        list[Path],
        typer.Option("--rules", metavar="FILE", exists=True, dir_okay=False, help="A rule file; may be repeated."),
    ],
    start: Annotated[
        Milliseconds, typer.Option("--start", parser=instant, metavar="TIME", help="Start of the range of samples.")
    ],
    end: Annotated[Milliseconds, typer.Option("--end", parser=instant, metavar="TIME", help="Its end, not included.")],
    interval: Annotated[
        Milliseconds | None,
        typer.Option("--interval", parser=duration, metavar="DURATION", help="Of groups without one; by default 1 m."),
    ] = None,
    query_offset: Annotated[
        Milliseconds | None,
        typer.Option(
            "--query-offset", parser=duration, metavar="DURATION", help="Of groups without one; by default 0."
        ),
    ] = None,
    lookback: Annotated[
        Milliseconds | None,
        typer.Option("--lookback", parser=duration, metavar="DURATION", help="As of the ruler; by default 5 m."),
    ] = None,
    enable_feature: EnableFeature = None,
    series_max: Annotated[
        int, typer.Option("--series-max", min=1, help="Series of one expression; with more its rule fails.")
    ] = 100_000,
    external_label: Annotated[
        list[str] | None,
        typer.Option("--external-label", metavar="NAME=VALUE", help="Label for templates; may be repeated."),
    ] = None,
    external_url: Annotated[str, typer.Option("--external-url", help="Address in templates.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the samples that differ from the stored ones.")
    ] = False,
    allow_holes: Annotated[bool, typer.Option("--allow-holes", help="Evaluate in spite of named losses.")] = False,
    wait: LoaderWait = None,
    tasks: Annotated[int | None, typer.Option("--tasks", min=1, help="Approximate number of tasks.")] = None,
    job_id: Annotated[
        str | None, typer.Option("--job-id", help="Id of the run; the id of a failed run writes the same keys.")
    ] = None,
) -> None:
    """Evaluate rule files over history, and write what a ruler would have recorded: new rules, or corrected ones.

    Samples equal to the stored ones are not written; samples of the rules' names that no rule gives are ended. Exit
    code 1: a rule failed at some steps.
    """
    from spark_backfill.jobs.rules.job import RulesOptions, evaluate_rules
    from spark_backfill.jobs.rules.work import RuleTexts
    from spark_backfill.writing.import_run import check_job_id, new_job_id

    labels = [label.partition("=") for label in external_label or []]
    if any(not name or not equals for name, equals, _ in labels):
        raise typer.BadParameter("--external-label is not NAME=VALUE")
    given = {"interval_ms": interval, "query_offset_ms": query_offset, "lookback_ms": lookback}
    texts = RuleTexts(
        tuple((str(file), file.read_bytes()) for file in files),
        tuple(enable_feature or ()),
        series_max=series_max,
        external_labels=tuple((name, value) for name, _, value in labels),
        external_url=external_url,
        **{name: value.ms for name, value in given.items() if value is not None},
    )
    options = RulesOptions(
        start.ms,
        end.ms,
        check_job_id(job_id) if job_id else new_job_id(),
        dry_run,
        allow_holes,
        tasks=tasks,
        wait_s=wait.ms / 1000 if wait else 900.0,
    )
    texts.components()  # A file with a problem is refused before a session starts.
    installation = run.installation
    shared = installation.checked(history=True)

    def job(spark: SparkSession) -> JobResult:
        return evaluate_rules(spark, texts, installation.places, shared, options)

    run.run("rules", job, rerun=f"--job-id {options.job_id}")

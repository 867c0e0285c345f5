"""`tsdb import`: imports blocks of Prometheus into history, in one process and without Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table, row_cells
from tsdb.cli.terminal.progress import progress_bar
from tsdb.config import CommonSettings
from tsdb.config.load import SPARK_SETTINGS
from tsdb.config.standalone import DATA_DIR, embedded_places
from tsdb.model.errors import TsdbError, worth_retrying


class ImportSettings(CommonSettings):
    """Settings of log and history. Without a log they are those of a standalone in `data_dir`."""

    data_dir: Path = Field(DATA_DIR, description="Folder of a standalone, for its log and history; not with log.")

    @classmethod
    def derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("log"):
            return values
        folder = Path(values.get("data_dir") or cls.model_fields["data_dir"].default)
        return {**embedded_places(folder), **values}


@with_settings(ImportSettings, only=("data_dir", *SPARK_SETTINGS))
def import_blocks(
    settings: ImportSettings,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Blocks of Prometheus, or folders of blocks.")],
    allow_rejects: Annotated[
        bool, typer.Option("--allow-rejects", help="Exit code 0 even with refused samples.")
    ] = False,
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
            help="End once the log has all chunks, while a loader continues. Ranges queried before may lack them until"
            " a run that waits.",
        ),
    ] = False,
    job_id: Annotated[
        str | None,
        typer.Option("--job-id", help="Id of the import, by default made of the files: the same command goes on."),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Import blocks of Prometheus into history: samples older than the shortest hold and a day; without Spark.

    A running standalone, or a loader, takes them into history; nothing has to stop. All blocks are checked before
    anything is written. A run that was ended goes on when the same command runs again. Exit code 1 when a sample was
    refused, unless --allow-rejects is given; the others are imported.
    """
    from spark_backfill.installation import Installation
    from spark_backfill.jobs.imports.prometheus.local import LocalOptions
    from spark_backfill.jobs.imports.prometheus.local import import_blocks as import_all
    from spark_backfill.writing.import_run import check_job_id
    from tsdb.ops.logs import configure_logging

    if wait is not None and no_wait:
        raise typer.BadParameter("give --wait or --no-wait")
    configure_logging(json=settings.log_format == "json", level=settings.log_level)
    default_s = LocalOptions().wait_s if wait is None else wait.ms / 1000
    options = LocalOptions(check_job_id(job_id) if job_id else "", allow_rejects, None if no_wait else default_s)
    installation, began = Installation(settings), time.monotonic()
    shared = installation.checked()
    try:
        done = import_all(
            [str(path) for path in paths], installation.places, shared, options, progress=progress_bar, remark=note
        )
    except BaseException as error:
        # Another error of ours would come again.
        if not isinstance(error, TsdbError) or worth_retrying(error):
            note("to go on, run the same command again")
        raise
    result = {**done.as_dict(), "seconds": round(time.monotonic() - began, 3)}
    if output == "json":
        print_json(result)
    else:
        rows: Any = result.pop("rows", [])
        if rows:
            print_table(tuple(rows[0]), map(row_cells, rows))
        shown = zip(result, row_cells(result), strict=True)
        print_table(("figure", "value"), ((name, value) for name, value in shown if value is not None))
    if not done.ok:
        raise typer.Exit(1)

"""`tsdb import`: imports blocks of Prometheus, and files of samples, into history, in one process and without Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import Field

from tsdb.cli.options.arguments import LoaderWait, TableOrJson
from tsdb.cli.options.layout import with_columns
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table, row_cells
from tsdb.cli.terminal.progress import progress_bar
from tsdb.config import CommonSettings
from tsdb.config.load import SPARK_SETTINGS
from tsdb.config.standalone import DATA_DIR, embedded_places
from tsdb.model.errors import Overloaded, TsdbError, worth_retrying
from tsdb.model.import_layout import ColumnNames

if TYPE_CHECKING:
    from spark_backfill.jobs.imports.local import ImportInput
    from tsdb.cli.samples.rows import SampleRows


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
@with_columns
def import_samples(
    settings: ImportSettings,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Blocks of Prometheus or folders of blocks; or files: Parquet, CSV, JSON lines."
        ),
    ],
    form: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="Format of the files, as of `tsdb write`.")
    ] = None,
    round_times: Annotated[
        bool, typer.Option("--round-times", help="Round times finer than a millisecond down; else they are refused.")
    ] = False,
    *,
    columns: ColumnNames,
    allow_rejects: Annotated[
        bool, typer.Option("--allow-rejects", help="Exit code 0 even with refused samples.")
    ] = False,
    wait: LoaderWait = None,
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
    """Import samples older than the shortest hold and a day into history, from blocks of Prometheus or from files.

    A running standalone, or a loader, takes them into history; nothing has to stop, and Spark is not needed. All is
    checked before anything is written. A run that was ended goes on when the same command runs again. Exit code 1 when
    a sample was refused, unless --allow-rejects is given; the others are imported.

    Files are read as `tsdb write` reads them, all of them into memory, up to 16,000,000 samples. Newer samples are
    refused as too_recent: `tsdb write` takes those of the last five days.
    """
    from spark_backfill.installation import Installation
    from spark_backfill.jobs.imports.local import LocalOptions, blocks_input, import_local
    from spark_backfill.writing.import_run import check_job_id
    from tsdb.ops.logs import configure_logging

    if wait is not None and no_wait:
        raise typer.BadParameter("give --wait or --no-wait")
    files = [path for path in paths if path.is_file()]
    if files and len(files) < len(paths):
        raise typer.BadParameter(f"give blocks or files, not both: {files[0]} is a file")
    if not files and (form or round_times or columns != ColumnNames()):
        raise typer.BadParameter("--format, --round-times and options that name columns go with files, not with blocks")
    configure_logging(json=settings.log_format == "json", level=settings.log_level)
    default_s = LocalOptions().wait_s if wait is None else wait.ms / 1000
    options = LocalOptions(check_job_id(job_id) if job_id else "", allow_rejects, None if no_wait else default_s)
    installation, began = Installation(settings), time.monotonic()
    shared = installation.checked()
    try:
        if files:
            given = _files_input(files, form, columns, round_times)
        else:
            given = blocks_input([str(path) for path in paths], note)
        done = import_local(given, installation.places, shared, options, progress=progress_bar, remark=note)
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


def _files_input(files: Sequence[Path], form: str | None, columns: ColumnNames, round_times: bool) -> ImportInput:
    """The rows of all files, in memory. Raises BadParameter, InvalidRequest (bad_input), Overloaded (import_limit)."""
    import hashlib

    from spark_backfill.jobs.imports.local import LARGE, ROWS_MAX, ImportInput, RowsInMemory, file_facts
    from tsdb.cli.samples.rows import join_rows
    from tsdb.cli.samples.source import Format, format_of, open_source, read_rows
    from tsdb.model.clock import SystemClock
    from tsdb.model.labels import parse_labels

    if form is not None and form not in get_args(Format):
        raise typer.BadParameter(f"'{form}' is not one of {', '.join(map(repr, get_args(Format)))}")
    parts: list[SampleRows] = []
    samples, now_ms = 0, SystemClock().now_ms()
    for file in files:
        chosen: Format = format_of(file, form)  # type: ignore[arg-type]  # checked above
        if columns != ColumnNames() and chosen not in ("csv", "parquet"):
            raise typer.BadParameter(f"options that name columns go with csv and parquet; the format is {chosen}")
        before = samples
        with open_source(file) as source:
            for rows in read_rows(
                source, str(file), chosen, now_ms=now_ms, round_times=round_times, columns=columns, remark=note
            ):
                rows.refuse_other_units(str(file), samples - before)
                samples += len(rows)
                if samples > ROWS_MAX:
                    raise Overloaded(
                        f"{file}: over {ROWS_MAX} samples in all files; import them one by one, or in parts; {LARGE}",
                        reason="import_limit",
                    )
                parts.append(rows)
    joined = join_rows(parts)
    facts = repr((file_facts(files), form, round_times, columns))
    whole = RowsInMemory([tuple(parse_labels(one)) for one in joined.labels], joined.codes, joined.ts_ms, joined.values)
    return ImportInput(hashlib.sha256(facts.encode()).hexdigest(), [lambda: whole], samples)

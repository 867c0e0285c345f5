"""`tsdb chunks`: inspect the chunks topic and the chunk stage, and repair a stage that refuses to begin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tsdb.cli.log_access import LOG_SETTINGS, Partition, chosen, opened_log
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table, row_cells
from tsdb.config import CommonSettings

RECORD_COLUMNS = ("partition", "offset", "what", "pack", "start", "order", "part", "bytes", "series", "samples", "text")
STATUS_COLUMNS = ("partition", "position", "lag", "emitted through", "whole from", "trouble")
DUPLICATE_COLUMNS = ("partition", "records", "keys", "equal duplicates", "conflicts")
RESUME_COLUMNS = ("partition", "trouble", "needs", "hole start", "hole end", "done")
SAMPLE_COLUMNS = ("series", "ts_ms", "value", "order")

chunks = Commands("The chunks topic and the stage that fills it.")


@chunks.command("dump")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def dump(
    settings: CommonSettings,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most records to show, of each partition.")] = 100,
    output: TableOrJson = "table",
) -> None:
    """Print records of the chunks topic, one in each row: chunks with a summary, markers, holes."""
    from tsdb.cli.chunk_rows import record_rows

    with opened_log(settings) as log:
        rows = [row for one in chosen(log, partition) for row in record_rows(log, one, limit)]
    if output == "json":
        for row in rows:
            print_json(row)
        return
    numbers = ("partition", "offset", "order", "part", "bytes", "series", "samples")
    print_table(RECORD_COLUMNS, map(row_cells, rows), right=numbers)


@chunks.command("show")
def show(
    file: Annotated[Path, typer.Argument(allow_dash=True, help="A chunk's bytes in a file; - for stdin.")],
    output: TableOrJson = "table",
) -> None:
    """Print the samples of one chunk."""
    from tsdb.cli.chunk_rows import sample_rows

    rows = list(sample_rows(file))
    if output == "json":
        for row in rows:
            print_json(row)
    else:
        print_table(SAMPLE_COLUMNS, ((row["series"], str(row["ts_ms"]), row["value"], row["order"]) for row in rows))


@chunks.command("find-duplicates")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def find_duplicates(settings: CommonSettings, partition: Partition = None, output: TableOrJson = "table") -> None:
    """Count chunks written more than once. Equal bytes are harmless; different bytes mean exit code 1."""
    from tsdb.cli.chunk_rows import Duplicates

    with opened_log(settings) as log:
        found = [Duplicates.of(log, one) for one in chosen(log, partition)]
    if output == "json":
        print_json({"partitions": [one.as_dict() for one in found]})
    else:
        rows = ((one.partition, one.records, one.keys, one.equal, len(one.conflicts)) for one in found)
        print_table(DUPLICATE_COLUMNS, rows, right=DUPLICATE_COLUMNS)
        for one in found:
            for conflict in one.conflicts:
                note(f"partition {one.partition}: other bytes under one key: {conflict}")
    if any(one.conflicts for one in found):
        raise typer.Exit(1)


@chunks.command("status")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def status(settings: CommonSettings, partition: Partition = None, output: TableOrJson = "table") -> None:
    """Print the progress of the chunk stage, from its commits; exit code 1 when a partition cannot begin."""
    from tsdb.cli.chunk_rows import stage_rows

    with opened_log(settings) as log:
        rows = list(stage_rows(log, chosen(log, partition), settings.times))
    if output == "json":
        print_json({"partitions": rows})
    else:
        print_table(STATUS_COLUMNS, map(row_cells, rows), right=("partition", "position", "lag"))
    if any(row["trouble"] for row in rows):
        raise typer.Exit(1)


@chunks.command("resume")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def resume(
    settings: CommonSettings,
    accept_gap: Annotated[
        bool,
        typer.Option("--accept-gap", help="Continue where the log was trimmed past the needed offset; leaves a hole."),
    ] = False,
    accept_replay: Annotated[
        bool,
        typer.Option(
            "--accept-replay",
            help="Continue from the last marker where the commit is unusable (another log, a newer version, corrupt).",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the repair; without it, only show it.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Repair partitions where the chunk stage refuses to begin. Shows the problems; `--yes` repairs accepted ones."""
    from tsdb.cli.chunk_rows import resume_rows

    accepted = {name for name, given in (("accept-gap", accept_gap), ("accept-replay", accept_replay)) if given}
    with opened_log(settings) as log:
        rows = resume_rows(log, settings.times, accepted if yes else set())
    if output == "json":
        print_json({"partitions": rows})
    else:
        print_table(RESUME_COLUMNS, map(row_cells, rows), right=("partition",))
        note(_summary(rows, accepted))
    if any(not row["done"] for row in rows):
        raise typer.Exit(1)


def _summary(rows: list[dict[str, object]], accepted: set[str]) -> str:
    if not rows:
        return "every partition can begin"
    left = [row for row in rows if not row["done"]]
    if not left:
        return f"{len(rows)} partition(s) can begin now"
    possible = [row for row in left if set(str(row["needs"]).split(", ")) <= accepted]
    return f"{len(left)} partition(s) cannot begin; " + (
        f"`--yes` repairs {len(possible)}" if possible else "accept what each needs"
    )

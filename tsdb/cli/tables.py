"""`tsdb tables`: create, check and maintain the Iceberg table that a loader keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import Milliseconds, TableOrJson, duration
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config.common import CommonSettings
from tsdb.config.tables import TablesFields
from tsdb.history.open import needing_pyiceberg
from tsdb.model.times import time_text
from tsdb.roles.tables import BUCKETS, table_settings

if TYPE_CHECKING:
    from pyiceberg.table import Table

SETTINGS = ("config", "tables", "tables_warehouse", "tables_name")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FILES_MIN = 8  # Fewer would write the newest day's samples again with each run.
COLUMNS = ("partition", "position", "emitted through")


class TablesSettings(TablesFields, CommonSettings):
    """Settings of commands on the table, without a log."""

    log: str = ""


tables = Commands("The Iceberg table that other programs read.")


@tables.command("create")
@with_settings(TablesSettings, only=SETTINGS)
def create(
    settings: TablesSettings,
    buckets: Annotated[
        int,
        typer.Option("--buckets", min=1, max=4096, help="Metric buckets of a day; more make more and smaller files."),
    ] = BUCKETS,
    output: TableOrJson = "table",
) -> None:
    """Create the table and its namespace; an existing table that differs is an error.

    Prints where it is; JSON has made, table, location and metadata.
    """
    where = table_settings(settings)
    with needing_pyiceberg():
        from tsdb.history.iceberg.catalog import create_table, load_table, open_catalog
    with open_catalog(where) as catalog:
        made = create_table(catalog, where.name, buckets)
        table = load_table(catalog, where.name)
    if output == "json":
        print_json({"made": made, **_place(table)})
        return
    print(f"{'made' if made else 'found'} table {where.name} in {table.location()}")
    print(f"next: tsdb loader with --tables {settings.tables} keeps it")


@tables.command("check")
@with_settings(TablesSettings, only=SETTINGS)
def check(settings: TablesSettings, output: TableOrJson = "table") -> None:
    """Print what the table holds: the cut of the log, samples and files; exit code 1 when it cannot be kept.

    JSON has table, location, metadata, snapshot, emission, samples, files, bytes, cut and holes.
    """
    where = table_settings(settings)
    with needing_pyiceberg():
        from tsdb.history.iceberg.catalog import load_table, open_catalog
        from tsdb.history.iceberg.state import table_state
    with open_catalog(where) as catalog:
        table = load_table(catalog, where.name)
        state = table_state(table)
    cut = {} if state is None else state.cut
    if output == "json":
        rows = {
            str(number): {"position": one.position, "emitted_through_ms": one.emitted_through_ms}
            for number, one in sorted(cut.items())
        }
        print_json(
            {
                **_place(table),
                **_content(table),
                "emission": 0 if state is None else state.emission,
                "cut": rows,
                "holes": 0 if state is None else state.holes_total,
            }
        )
        return
    content = _content(table)
    if state is None:
        note("the table is empty: no loader has committed to it")
    print_table(
        COLUMNS,
        [(number, one.position, time_text(one.emitted_through_ms)) for number, one in sorted(cut.items())],
        right=("partition", "position"),
    )
    emission = 0 if state is None else state.emission
    note(f"emission {emission}: {content['samples']} samples in {content['files']} files, {content['bytes']} bytes")
    if state is not None and state.holes_total:
        note(f"{state.holes_total} named losses: property tsdb.holes of the snapshot")
    note(f"metadata: {table.metadata_location}")


@tables.command("compact")
@with_settings(TablesSettings, only=SETTINGS)
def compact(
    settings: TablesSettings,
    files_min: Annotated[
        int, typer.Option("--files-min", min=2, help="Small files of a day and bucket, from which on they are joined.")
    ] = FILES_MIN,
    yes: Annotated[bool, typer.Option("--yes", help="Join them; without it they are only counted.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Join files below 64 MiB, one day and metric bucket a commit; a loader may keep the table meanwhile.

    JSON has joined: day, bucket, files before and after, and whether they were left as they are.
    """
    where = table_settings(settings)
    with needing_pyiceberg():
        from tsdb.history.iceberg import maintain
        from tsdb.history.iceberg.catalog import load_table, open_catalog
    with open_catalog(where) as catalog:
        rows: list[tuple[str, int, int, int | None, bool]]
        if yes:
            rows = [
                (_day(one.day), one.bucket, one.files_before, one.files_after, one.skipped)
                for one in maintain.compact(catalog, where.name, files_min)
            ]
        else:
            small = maintain.small_files(load_table(catalog, where.name), files_min)
            rows = [(_day(day), bucket, len(files), None, True) for (day, bucket), files in small.items()]
    if output == "json":
        names = ("day", "bucket", "files_before", "files_after", "skipped")
        print_json({"joined": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    print_table(("day", "bucket", "files", "files after", "skipped"), rows, right=("bucket", "files", "files after"))
    note(f"{len(rows)} joined" if yes else f"{len(rows)} would be joined; `--yes` does it")


@tables.command("drop")
@with_settings(TablesSettings, only=SETTINGS)
def drop(
    settings: TablesSettings,
    older_than: Annotated[
        Milliseconds,
        typer.Option("--older-than", parser=duration, metavar="DURATION", help="Age of the days of samples."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Drop them; without it they are only counted.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Drop whole days of samples from the table, by age; history keeps them.

    Their files are deleted when their snapshots expire. JSON has files, samples and bytes.
    """
    where = table_settings(settings)
    with needing_pyiceberg():
        from tsdb.history.iceberg import maintain
        from tsdb.history.iceberg.catalog import load_table, open_catalog
    day = (datetime.now(UTC) - timedelta(milliseconds=older_than.ms) - EPOCH).days
    with open_catalog(where) as catalog:
        if yes:
            found = maintain.drop_before(catalog, where.name, day)
        else:
            found = maintain.files_before(load_table(catalog, where.name), day)
    samples, size = sum(file.record_count for file in found), sum(file.file_size_in_bytes for file in found)
    if output == "json":
        print_json({"files": len(found), "samples": samples, "bytes": size})
        return
    text = f"{samples} samples in {len(found)} files, before {_day(day)},"
    note(f"dropped {text.removesuffix(',')}" if yes else f"{text} would be dropped; `--yes` does it")


@tables.command("expire")
@with_settings(TablesSettings, only=SETTINGS)
def expire(
    settings: TablesSettings,
    older_than: Annotated[
        Milliseconds,
        typer.Option(
            "--older-than", parser=duration, metavar="DURATION", help="Age of snapshots: above the longest query."
        ),
    ] = "24h",  # type: ignore[assignment]  # parsed as if typed
    yes: Annotated[bool, typer.Option("--yes", help="Expire them; without it they are only counted.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Drop old snapshots, and delete the files that only they have; samples stay.

    JSON has snapshots and files.
    """
    where = table_settings(settings)
    with needing_pyiceberg():
        from tsdb.history.iceberg import maintain
        from tsdb.history.iceberg.catalog import load_table, open_catalog
    before = datetime.now(UTC) - timedelta(milliseconds=older_than.ms)
    with open_catalog(where) as catalog:
        if yes:
            found = maintain.expire(catalog, where.name, before)
        else:
            found = maintain.expirable(load_table(catalog, where.name), before)
    if output == "json":
        print_json({"snapshots": found.snapshots, "files": found.files})
        return
    text = f"{len(found.snapshots)} snapshots and {len(found.files)} files"
    note(f"expired {text}" if yes else f"{text} would be expired; `--yes` does it")


def _day(number: int) -> str:
    return (EPOCH + timedelta(days=number)).date().isoformat()


def _place(table: Table) -> dict[str, Any]:
    return {"table": ".".join(table.name()), "location": table.location(), "metadata": table.metadata_location}


def _content(table: Table) -> dict[str, Any]:
    snapshot = table.current_snapshot()
    summary = None if snapshot is None else snapshot.summary
    totals = {} if summary is None else summary.additional_properties
    return {
        "snapshot": None if snapshot is None else snapshot.snapshot_id,
        "samples": int(totals.get("total-records", 0)),
        "files": int(totals.get("total-data-files", 0)),
        "bytes": int(totals.get("total-files-size", 0)),
    }

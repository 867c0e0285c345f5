"""`tsdb tables`: create and check the Iceberg table that a loader keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config.common import CommonSettings
from tsdb.config.tables import TablesFields
from tsdb.model.times import time_text
from tsdb.roles.tables import BUCKETS, needing_pyiceberg, table_settings

if TYPE_CHECKING:
    from pyiceberg.table import Table

SETTINGS = ("config", "tables", "tables_warehouse", "tables_name")
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
        from tsdb.tables.catalog import create_table, load_table, open_catalog
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
        from tsdb.tables.catalog import load_table, open_catalog
        from tsdb.tables.state import table_state
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

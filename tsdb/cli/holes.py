"""`tsdb holes`: list and accept the named losses in history, or in an Iceberg table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import End, Last, Start, TableOrJson, TimeRange, time_range
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import HISTORY_SETTINGS, ToolSettings, with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config.tables import TablesFields
from tsdb.model.errors import ConfigMismatch
from tsdb.model.times import time_text

if TYPE_CHECKING:
    from tsdb.codec.chunk.marker import HoleRecord
    from tsdb.history.interface import HistoryHole

COLUMNS = ("partition", "pack", "start", "end", "reason", "record offset", "accepted")
EVER = TimeRange(-(1 << 62), 1 << 62)

Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only losses of this partition.")]


class HolesSettings(TablesFields, ToolSettings):
    """Settings of history, and of the table whose losses a command takes instead."""


SETTINGS = (*HISTORY_SETTINGS, "tables", "tables_warehouse", "tables_name")

holes = Commands("Named losses. Reads of their ranges are refused until they are accepted.")


@holes.command("ls")
@with_settings(HolesSettings, only=SETTINGS)
def ls(
    settings: HolesSettings,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    output: TableOrJson = "table",
) -> None:
    """List losses that touch the range; without a range, all. `tsdb coverage` has the losses found by stores. With
    --tables, the losses of that Iceberg table.
    """
    _print(_found(settings, partition, time_range(start, end, last) or EVER), output)


@holes.command("accept")
@with_settings(HolesSettings, only=SETTINGS)
def accept(
    settings: HolesSettings,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept the losses; without it, only show them.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Accept the losses that touch the range, permanently, so that reads answer. Shows them; `--yes` accepts them. With
    --tables, the losses of that Iceberg table; where it is the history, this is the way.
    """
    span = time_range(start, end, last)
    if span is None:
        raise typer.BadParameter("give --start and --end, or --last: losses are accepted by their time")
    from tsdb.roles.tables import reads_table

    if not settings.tables and reads_table(settings.history):
        raise ConfigMismatch(
            f"history {settings.history} is a table, and losses are accepted in its catalog: give --tables",
            reason="tables_url",
        )
    found = [one for one in _found(settings, partition, span) if not one.accepted]
    if yes and found:
        _accept(settings, [one.hole for one in found])
    _print(found, output)
    note(f"{len(found)} accepted" if yes else f"{len(found)} would be accepted; `--yes` does it")


def _found(settings: HolesSettings, partition: int | None, span: TimeRange) -> list[HistoryHole]:
    partitions: Collection[int] | None = None if partition is None else [partition]
    if settings.tables:
        from tsdb.history.open import needing_pyiceberg
        from tsdb.roles.tables import table_settings

        where = table_settings(settings)
        with needing_pyiceberg():
            from tsdb.history.iceberg.catalog import load_table, open_catalog
            from tsdb.history.iceberg.state import table_state
        with open_catalog(where) as catalog:
            state = table_state(load_table(catalog, where.name))
        return [] if state is None else state.losses(partitions, span.start_ms, span.end_ms)
    from tsdb.history.open import open_history_reads

    with closing(open_history_reads(settings.required_history(), settings.history_settings())) as reads:
        return reads.holes(partitions, span.start_ms, span.end_ms)


def _accept(settings: HolesSettings, holes: Iterable[HoleRecord]) -> None:
    if settings.tables:
        from tsdb.history.iceberg.catalog import open_catalog
        from tsdb.history.iceberg.maintain import accept_losses
        from tsdb.roles.tables import table_settings

        where = table_settings(settings)
        with open_catalog(where) as catalog:
            accept_losses(catalog, where.name, holes)
        return
    from tsdb.history.open import open_history
    from tsdb.history.writes import write_sync

    with open_history(settings.required_history(), settings.history_settings()) as store:
        for hole in holes:
            write_sync(lambda done, hole=hole: store.accept_hole(hole, done))  # type: ignore[misc]


def _print(found: list[HistoryHole], output: str) -> None:
    if output == "json":
        print_json({"holes": [{**asdict(one.hole), "accepted": one.accepted} for one in found]})
        return
    rows = (
        (
            one.hole.partition,
            f"{one.hole.pack_id:016x}" if one.hole.pack_id else None,
            time_text(one.hole.start_ms),
            time_text(one.hole.end_ms),
            one.hole.reason,
            one.hole.record_offset,
            one.accepted,
        )
        for one in found
    )
    print_table(COLUMNS, rows, right=("partition", "record offset"))

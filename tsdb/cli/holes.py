"""`tsdb holes`: list and accept the named losses in history."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import End, Last, Start, TableOrJson, TimeRange, time_range
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import HISTORY_SETTINGS, ToolSettings, with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.model.times import time_text

if TYPE_CHECKING:
    from tsdb.history.interface import HistoryHole

COLUMNS = ("partition", "pack", "start", "end", "reason", "record offset", "accepted")
EVER = TimeRange(-(1 << 62), 1 << 62)

Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only losses of this partition.")]

holes = Commands("Named losses. Reads of their ranges are refused until they are accepted.")


@holes.command("ls")
@with_settings(ToolSettings, only=HISTORY_SETTINGS)
def ls(
    settings: ToolSettings,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    output: TableOrJson = "table",
) -> None:
    """List losses that touch the range; without a range, all. `tsdb coverage` has the losses found by stores."""
    from tsdb.history.open import open_history

    with open_history(settings.required_history(), settings.history_settings()) as store:
        span = time_range(start, end, last) or EVER
        found = store.holes(None if partition is None else [partition], span.start_ms, span.end_ms)
    _print(found, output)


@holes.command("accept")
@with_settings(ToolSettings, only=HISTORY_SETTINGS)
def accept(
    settings: ToolSettings,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept the losses; without it, only show them.")] = False,
    output: TableOrJson = "table",
) -> None:
    """Accept the losses that touch the range, permanently, so that reads answer. Shows them; `--yes` accepts them."""
    from tsdb.history.open import open_history
    from tsdb.history.writes import write_sync

    span = time_range(start, end, last)
    if span is None:
        raise typer.BadParameter("give --start and --end, or --last: losses are accepted by their time")
    with open_history(settings.required_history(), settings.history_settings()) as store:
        found = store.holes(None if partition is None else [partition], span.start_ms, span.end_ms)
        found = [one for one in found if not one.accepted]
        for one in found if yes else ():
            write_sync(lambda done, hole=one.hole: store.accept_hole(hole, done))  # type: ignore[misc]
    _print(found, output)
    note(f"{len(found)} accepted" if yes else f"{len(found)} would be accepted; `--yes` does it")


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

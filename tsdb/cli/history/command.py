"""`tsdb history`: create, check and inspect history, without a server of ours."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.history.backup import backup, restore, restore_topics, verify
from tsdb.cli.options.arguments import (
    End,
    Last,
    OptionalSelectorArgument,
    SelectorArgument,
    Start,
    TableOrJson,
    time_range,
)
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import HISTORY_SETTINGS, ToolSettings, with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.config import CommonSettings
from tsdb.model.meta import MetaSettings
from tsdb.model.times import time_text

# Settings of the log and of history. History must have the shared settings of the log.
SETTINGS = (
    *("log", "log_prefix"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
    *HISTORY_SETTINGS,
)
WINDOW_COLUMNS = ("window", "packs", "base", "late", "import", "folded", "bytes")
CHUNK_COLUMNS = ("pack", "window", "kind", "order", "part", "bytes", "series", "samples", "first", "last", "error")

history = Commands("History, the store of chunks.")


@history.command("create")
@with_settings(CommonSettings, only=SETTINGS)
def create(
    settings: CommonSettings,
    replication: Annotated[
        int, typer.Option("--replication", min=1, help="Copies of each row in every data centre; Cassandra only.")
    ] = 3,
    ttl_days: Annotated[
        int | None,
        typer.Option("--ttl-days", min=1, help="Days from the write of a chunk to its removal; Cassandra only."),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Create missing tables for the shared settings of the log; an existing table that differs is an error."""
    from tsdb.history.open import open_history_admin
    from tsdb.history.shared_settings import check_history, shared_rows

    shared = _shared_by_log(settings)
    with open_history_admin(settings.required_history(), settings.history_settings()) as admin:
        made = admin.create(shared_rows(shared), replication=replication, ttl_days=ttl_days)
        check_history(admin, shared)
    if output == "json":
        print_json({"made": made})
    else:
        note("created" if made else "all tables existed")


@history.command("check")
@with_settings(CommonSettings, only=SETTINGS)
def check(settings: CommonSettings, output: TableOrJson = "table") -> None:
    """List every wrong table, column and shared setting; exit code 1 when there is one."""
    from tsdb.history.open import open_history_admin
    from tsdb.history.shared_settings import history_differences

    shared = _shared_by_log(settings)
    with open_history_admin(settings.required_history(), settings.history_settings()) as admin:
        found = history_differences(admin, shared)
    if output == "json":
        print_json({"ok": not found, "differences": found})
    elif found:
        print_table(("difference",), [(line,) for line in found])
    else:
        note("history is correct")
    if found:
        raise typer.Exit(1)


history.command("backup")(backup)
history.command("restore")(restore)
history.command("restore-topics")(restore_topics)
history.command("verify")(verify)


@history.command("windows")
@with_settings(ToolSettings, only=HISTORY_SETTINGS)
def windows(
    settings: ToolSettings,
    matching: OptionalSelectorArgument = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    output: TableOrJson = "table",
) -> None:
    """Print the content of history by window: packs, rows of each kind, bytes. Reads the chunks of matching series."""
    from tsdb.cli.history.chunks import WindowTotals, history_chunks

    totals: dict[int, WindowTotals] = {}
    for row in history_chunks(settings, matching, time_range(start, end, last)):
        totals.setdefault(row.key.window_start_ms, WindowTotals()).add(row)
    found = sorted(totals.items())
    if output == "json":
        print_json({"windows": [{"start_ms": start_ms, **total.as_dict()} for start_ms, total in found]})
        return
    rows = ((time_text(start_ms), *total.as_dict().values()) for start_ms, total in found)
    print_table(WINDOW_COLUMNS, rows, right=WINDOW_COLUMNS[1:])


@history.command("show")
@with_settings(ToolSettings, only=HISTORY_SETTINGS)
def show(
    settings: ToolSettings,
    matching: SelectorArgument,
    start: Start = None,
    end: End = None,
    last: Last = None,
    output: TableOrJson = "table",
) -> None:
    """Decode and list every chunk of the packs of matching series; exit code 1 when one cannot be decoded."""
    from tsdb.cli.history.chunks import described, history_chunks

    rows = [described(row) for row in history_chunks(settings, matching, time_range(start, end, last))]
    if output == "json":
        print_json({"chunks": rows})
    else:
        print_table(
            CHUNK_COLUMNS, (tuple(row.values()) for row in rows), right=("order", "part", "bytes", "series", "samples")
        )
    if any(row["error"] for row in rows):
        raise typer.Exit(1)


def _shared_by_log(settings: CommonSettings) -> MetaSettings:
    """The shared settings of the log. Raises ConfigMismatch (meta) when the topic `meta` is empty."""
    from tsdb.log.meta import require_meta
    from tsdb.log.open import open_log
    from tsdb.roles.log import log_settings

    with open_log(settings.log, prefix=settings.log_prefix, settings=log_settings(settings)) as log:
        return require_meta(log)

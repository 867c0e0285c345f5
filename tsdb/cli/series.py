"""`tsdb series` and `tsdb labels` list series, label names and label values."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

import typer

from tsdb.cli.options.arguments import (
    End,
    Last,
    OptionalSelectorArgument,
    Start,
    TableOrJson,
    TimeRange,
    selector,
    time_range,
)
from tsdb.cli.options.connection import AllowStale, Connection, MaxLag, connected, read_options
from tsdb.cli.terminal.output import note, print_json, print_table, print_warnings
from tsdb.client import Client, ReadOptions
from tsdb.model.labels import format_series
from tsdb.model.times import time_text


@connected()
def series(
    connection: Connection,
    matching: OptionalSelectorArgument = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    group_by: Annotated[
        str | None, typer.Option("--group-by", metavar="LABEL[,LABEL]", help="Count series by these labels instead.")
    ] = None,
    allow_stale: AllowStale = False,
    max_lag: MaxLag = None,
    output: TableOrJson = "table",
) -> None:
    """List matching series with the times of their first and last sample; with a range, only those with a sample in it.

    Times are those of the samples that the server holds.
    """
    span = time_range(start, end, last)
    if group_by is not None and not all(group_by.split(",")):
        raise typer.BadParameter(f"--group-by {group_by!r} has an empty label name")
    options = read_options(allow_stale, max_lag)
    with connection.open() as client:
        if group_by is not None:
            _print_groups(client, matching, group_by.split(","), span, options, output)
        else:
            _print_series(client, matching, span, options, output)


def _print_series(
    client: Client, matching: str | None, span: TimeRange | None, options: ReadOptions, output: str
) -> None:
    start_ms, end_ms = (span.start_ms, span.end_ms) if span else (None, None)
    found = client.series(matching, start_ms=start_ms, end_ms=end_ms, options=options)
    print_warnings(found.warnings)
    if output == "json":
        rows = [
            {
                "labels": info.labels,
                "series_id": f"{info.series_id:016x}",
                "partition": info.partition,
                "first_seen_ms": info.first_seen_ms,
                "last_seen_ms": info.last_seen_ms,
            }
            for info in found
        ]
        print_json({"series": rows})
        return
    print_table(
        ("series", "partition", "first sample", "last sample"),
        (
            (format_series(info.canonical), info.partition, time_text(info.first_seen_ms), time_text(info.last_seen_ms))
            for info in found
        ),
        right=("partition",),
    )


def _print_groups(
    client: Client, matching: str | None, names: list[str], span: TimeRange | None, options: ReadOptions, output: str
) -> None:
    start_ms, end_ms = (span.start_ms, span.end_ms) if span else (None, None)
    groups = client.series_groups(matching, names, start_ms=start_ms, end_ms=end_ms, options=options)
    print_warnings(groups.warnings)
    if output == "json":
        rows = [{"labels": dict(zip(names, group.values, strict=True)), "series": group.series} for group in groups]
        print_json({"groups": rows})
        return
    print_table((*names, "series"), ((*group.values, group.series) for group in groups), right=("series",))


@connected()
def labels(
    connection: Connection,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="List the values of this label; by default all names.")
    ] = None,
    matching: Annotated[
        str | None, typer.Option("--selector", parser=selector, metavar="SELECTOR", help="Only of matching series.")
    ] = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    allow_stale: AllowStale = False,
    max_lag: MaxLag = None,
    output: TableOrJson = "table",
) -> None:
    """List label names, or the values of one label; with a range, also those of series in history."""
    span = time_range(start, end, last)
    start_ms, end_ms = (span.start_ms, span.end_ms) if span else (None, None)
    options = read_options(allow_stale, max_lag)
    with connection.open() as client:
        if name is None:
            key = "names"
            found = client.label_names(matching, start_ms=start_ms, end_ms=end_ms, options=options)
        else:
            key = "values"
            found = client.label_values(name, matching, start_ms=start_ms, end_ms=end_ms, options=options)
        names = [] if found or name is None else client.label_names(matching, start_ms=start_ms, end_ms=end_ms)
    print_warnings(found.warnings)
    if not found:
        note(_nothing(name, names, matching))
    if output == "json":
        print_json({key: found})
    else:
        print_table((name or "label",), ((text,) for text in found))


def _nothing(name: str | None, names: Sequence[str], matching: str | None) -> str:
    """A remark on an empty list, with the label that was perhaps meant."""
    close = get_close_matches(name, names, n=1) if name is not None else []
    if close:
        return f"no label {name!r}; did you mean {close[0]!r}?"
    of = f"no series of {matching}" if matching else "no series"
    return f"{of} has a label {name!r}" if name is not None else f"{of} in memory; --last 30d looks into history too"

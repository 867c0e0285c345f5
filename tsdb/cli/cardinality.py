"""`tsdb cardinality` lists the metrics, labels, label pairs or sources with the most series."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from tsdb.cli.options.arguments import selector
from tsdb.cli.options.connection import AllowStale, Connection, MaxLag, connected, read_options
from tsdb.cli.terminal.output import note, print_json, print_table, print_warnings
from tsdb.client.cardinality import By, Cardinality, CardinalityGroup

BAR_WIDTH = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"
COLUMNS = {
    "metric": ("metric", "series"),
    "label": ("label", "values", "series"),
    "pair": ("name", "value", "series"),
    "source": ("labels", "series"),
}
_HEADINGS = {"metric": "metric", "label": "label", "pair": "label pair", "source": "source"}


@connected()
def cardinality(
    connection: Connection,
    by: Annotated[By, typer.Option("--by", help="Count by metric name, label name, label pair, or source.")] = "metric",
    top: Annotated[int, typer.Option("--top", min=1, max=10_000, help="Groups to show.")] = 20,
    matching: Annotated[
        str | None, typer.Option("--selector", parser=selector, metavar="SELECTOR", help="Only of matching series.")
    ] = None,
    allow_stale: AllowStale = False,
    max_lag: MaxLag = None,
    output: Annotated[Literal["table", "json", "csv"], typer.Option("--output", help="Output format.")] = "table",
) -> None:
    """Print the largest groups of series in memory, with exact counts: by metric, label, label pair or source.

    Labels are ranked by their number of values. A source is the values of the placement labels.
    """
    options = read_options(allow_stale, max_lag)
    with connection.open() as client:
        found = client.cardinality(matching, by=by, top=top, options=options)
    print_warnings(found.warnings)
    if output == "json":
        print_json(
            {"by": by, "series": found.series, "groups_total": found.groups_total, "groups": list(_rows(found, by))}
        )
    elif output == "csv":
        _print_csv(found, by)
    else:
        _print_table(found, by)


def _rows(found: Cardinality, by: By) -> Iterator[dict[str, object]]:
    for group in found.groups:
        yield {**_key(group, by), "series": group.series}


def _key(group: CardinalityGroup, by: By) -> dict[str, object]:
    if by == "source":
        return {"labels": group.labels}
    name, value = next(iter(group.labels.items()))
    if by == "label":
        return {"label": name, "values": group.values}
    return {"metric": value} if by == "metric" else {"name": name, "value": value}


def _print_csv(found: Cardinality, by: By) -> None:
    rows = [{key: _csv_cell(value) for key, value in row.items()} for row in _rows(found, by)]
    writer = csv.DictWriter(sys.stdout, COLUMNS[by], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _csv_cell(value: object) -> object:
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if isinstance(value, dict) else value


def _print_table(found: Cardinality, by: By) -> None:
    sizes = [group.values if group.values is not None else group.series for group in found.groups]
    largest = max(sizes, default=0)
    lines = [
        (_text(group, by), *_numbers(group), _share(group.series, found.series), bar(size, largest))
        for group, size in zip(found.groups, sizes, strict=True)
    ]
    numbers = ("values", "series") if by == "label" else ("series",)
    print_table((_HEADINGS[by], *numbers, "of all series", ""), lines, right=(*numbers, "of all series"))
    kind = _HEADINGS[by] + "s"
    total = "" if found.groups_total is None else f", {found.groups_total:,} {kind}"
    more = found.groups_total is None or found.groups_total > len(found.groups)
    note(f"{found.series:,} series{total}" + (f"; the largest {len(found.groups):,} shown (--top)" if more else ""))


def _text(group: CardinalityGroup, by: By) -> str:
    if by == "source":
        return ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in group.labels.items())
    name, value = next(iter(group.labels.items()))
    return {"metric": value, "label": name}.get(by, f"{name}={json.dumps(value, ensure_ascii=False)}")


def _numbers(group: CardinalityGroup) -> tuple[int, ...]:
    return (group.series,) if group.values is None else (group.values, group.series)


def _share(series: int, total: int) -> str:
    return f"{100 * series / total:.1f} %" if total else "-"


def bar(size: int, largest: int) -> str:
    """A bar of up to BAR_WIDTH characters, in eighths of one; any size above 0 shows."""
    eighths = max(1, round(8 * BAR_WIDTH * size / largest)) if size and largest else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()

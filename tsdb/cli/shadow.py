"""`tsdb shadow`: reads whose answers differ between a querier and its shadow, from the folder `shadow_dir`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.groups import Commands
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import time_text

COLUMNS = ("read at", "method", "kind", "series", "time", "own", "shadow")
ABSENT = "-"

shadow = Commands("Shadow reads of a querier.")


@shadow.callback()
def callback() -> None:
    """Shadow reads of a querier."""


@shadow.command("diff")
def diff(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The querier's shadow_dir.")],
    newest: Annotated[int, typer.Option("--newest", min=1, help="Print this many of the newest reads.")] = 10,
    output: TableOrJson = "table",
) -> None:
    """Print reads whose answers differ, with the samples of both sides; exit code 1 when there is one.

    At most 20 series of a read and 50 samples of a series are kept.
    """
    # Imported here: this module is otherwise loaded only by a running querier.
    from tsdb.query.shadow.kept import kept_files

    if not folder.is_dir():
        raise InvalidRequest(f"{folder} is no folder: give the shadow_dir of a querier", reason="shadow_dir")
    pairs = [_read(path) for path in kept_files(folder)[-newest:]]
    if output == "json":
        print_json({"reads": pairs})
    elif pairs:
        print_table(COLUMNS, (row for pair in pairs for row in _rows(pair)))
    else:
        note(f"no read in {folder} differs")
    if pairs:
        raise typer.Exit(1)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{path} cannot be read as a kept read: {error}", reason="shadow_dir") from error
    return found


def _rows(pair: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    head = time_text(pair["at_ms"]), pair["method"]
    for text in pair["coverage"]:
        yield *head, "coverage", text, ABSENT, ABSENT, ABSENT
    for series in pair["series"]:
        labels = ",".join(f"{name}={value}" for name, value in series["labels"].items())
        for ts_ms, own, theirs in series["rows"]:
            yield *head, series["kind"], labels, time_text(ts_ms), own or ABSENT, theirs or ABSENT

"""Prints the output of commands: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import Message

from tsdb.model.times import time_text

PIPED_WIDTH = 240  # A piped table need not fit the width of a terminal.
COLUMN_GAP = 1  # Blanks between two columns of a table.
_HARD_BLANK = "\x00"


def note(text: str) -> None:
    """Print a remark for the user on stderr."""
    print(text, file=sys.stderr)


def print_warnings(warnings: Iterable[str]) -> None:
    """Print what an answer may lack, on stderr."""
    for warning in warnings:
        note(f"warning: {warning}")


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout."""
    sys.stdout.write(json_line(value))
    sys.stdout.flush()


def json_line(value: Any) -> str:
    """Compact JSON and a line break. Floats must be finite: see `json_value`."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"


def json_value(value: float) -> float | str:
    """A sample's value in the form that `tsdb write` reads: a number, or one of the strings NaN, +Inf, -Inf."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def value_text(value: float) -> str:
    """A sample's value in full, as Prometheus writes it: 1, 0.30000000000000004, NaN, +Inf."""
    return str(json_value(value)).removesuffix(".0")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> None:
    """Print a table on stdout; the columns in `right` are aligned to the right.

    On a terminal too narrow for the table, each row is printed as a heading, its first cell, and lines `column: cell`.
    """
    # Imported here: JSON output and server processes do not need it.
    from rich.console import Console

    cells = [[_cell(value) for value in row] for row in rows]
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    elif _width(columns, cells) > console.width:
        sys.stdout.write("".join(_stacked(columns, row, console.width) for row in cells))
        return
    console.print(_table(columns, cells, set(right)))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: set[str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + COLUMN_GAP for column in zip(columns, *rows, strict=True)) - COLUMN_GAP


def _stacked(columns: Sequence[str], row: Sequence[str], width: int) -> str:
    heading = f"{columns[0]} {row[0]}" if row[0].replace(",", "").isdigit() else row[0]
    parts = [f"{name}: {cell or '-'}" for name, cell in zip(columns[1:], row[1:], strict=True)]
    # Names and cells may contain blanks. Only a part that is longer than a line is broken.
    joined = textwrap.fill(
        "  ".join(part.replace(" ", _HARD_BLANK) for part in parts),
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )
    return f"{heading}\n{joined.replace(_HARD_BLANK, ' ')}\n" if parts else f"{heading}\n"


def row_cells(row: dict[str, object]) -> list[object]:
    """Table cells of a row of plain JSON. Values whose name ends with _ms become times."""
    return [
        time_text(value) if name.endswith("_ms") and (value is None or isinstance(value, int)) else value
        for name, value in row.items()
    ]


def message_dict(message: Message) -> dict[str, Any]:
    """A protobuf message as plain JSON values. 64-bit integers become numbers, an absent optional field becomes
    null."""
    return {field.name: _field(message, field) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.is_repeated:
        return [message_dict(item) if isinstance(item, Message) else item for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return message_dict(value) if isinstance(value, Message) else value


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)

"""Grid: represents a table of a page as plain texts, for the macro of templates/grid.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """help: a sentence for readers who do not know the title. is_number: align at the right. is_time: keep on one
    line."""

    title: str
    help: str = ""
    is_number: bool = False
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """title: more text, shown on demand. is_bad: an operator should act; a sign marks the cell too. share: of a bar
    beside the text, from 0 to 1; None for no bar. link: a page of this server that the text links to. is_name: use the
    font of code. cancels: number of the running query that a button ends; the text is on the button."""

    text: str
    title: str = ""
    is_bad: bool = False
    share: float | None = None
    link: str = ""
    is_name: bool = False
    cancels: int | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """empty: the sentence that replaces a table without rows."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str

"""Grid: a table of a page as plain texts, for the macro of templates/grid.html."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """help: a sentence for those who do not know the title. is_number: aligned at the right. is_time: on one line."""

    title: str
    help: str = ""
    is_number: bool = False
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """title: more, shown on demand. is_bad: somebody should act; also marked by a sign. share: of a bar beside the
    text, from 0 to 1; None for no bar. link: of the text, to a page of this server. is_name: in the font of code.
    cancels: number of the running query that a button with the text ends."""

    text: str
    title: str = ""
    is_bad: bool = False
    share: float | None = None
    link: str = ""
    is_name: bool = False
    cancels: int | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """empty: a sentence in place of a table without rows."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str

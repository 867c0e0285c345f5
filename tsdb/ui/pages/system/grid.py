"""Grid: represents a table of a page as plain texts, for the macro of templates/grid.html.

Texts of the pages about the system. Labels and queries come from callers, so they are shortened and made
printable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tsdb.api.prometheus.json.rows import valid_text
from tsdb.model.times import time_text

CHARS_MAX = 300  # Characters of one label or query in a table.
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_PREFIXES = ("B", "KiB", "MiB", "GiB", "TiB")


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
    """title: more text, shown on demand. is_bad: an operator should act; a sign marks the cell too. share: the share of
    a bar beside the text, from 0 to 1; None for no bar. link: a page of this server that the text links to. is_name:
    use the font of code. cancels: number of the running query that a button ends; the text is on the button.
    """

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


def visible(text: str, chars_max: int = CHARS_MAX) -> str:
    """The text with control characters as their pictures, cut at `chars_max` characters with the whole length named."""
    shown = "".join(map(_picture, valid_text(text[:chars_max])))
    return shown if len(text) <= chars_max else f"{shown}… ({len(text):,} characters)"


def _picture(one: str) -> str:
    if one.isprintable():
        return one
    code = ord(one)
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"


def time(at_ms: int | None) -> str:
    """A time in UTC; a dash for None."""
    return "–" if at_ms is None else time_text(at_ms).replace("T", " ").removesuffix("Z").removesuffix(".000")


def duration(ms: float) -> str:
    """A duration with three digits: `850 ms`, `1.5 min`."""
    for size, unit in _UNITS:
        if abs(ms) >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms"


def size(count: float) -> str:
    """A number of bytes, with a prefix."""
    for prefix in _PREFIXES[:-1]:
        if abs(count) < 1024:
            return f"{count:.3g} {prefix}" if prefix != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:,.1f} {_PREFIXES[-1]}"


def number(count: int | None) -> str:
    """An integer with separators; a dash for None."""
    return "–" if count is None else f"{count:,}"

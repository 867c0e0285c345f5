"""Excerpt: shows the line of a query that an error names, with a caret below the position."""

from __future__ import annotations

import re
import unicodedata

# Characters before and after the position. With the indent and two cuts they are 80.
BEFORE, AFTER = 48, 24
INDENT = "  "
CUT = "..."

_PLACE = re.compile(r"(\d+):(\d+): parse error: ")


def excerpt(query: str, message: str) -> str:
    """Two lines without a final line break; "" for a message that begins without a `line:column` of the query.

    A column counts bytes of UTF-8 from 1.
    """
    place = _PLACE.match(message)
    line, column = (int(place[1]), int(place[2])) if place else (0, 0)
    text = dict(enumerate(query.split("\n"), start=1)).get(line, "")
    if not text.strip():
        return ""
    at = len(text.encode(errors="replace")[: column - 1].decode(errors="ignore"))
    before, after = _visible(text[max(0, at - BEFORE) : at]), _visible(text[at : at + AFTER])
    head = CUT if at > BEFORE else ""
    tail = CUT if at + AFTER < len(text) else ""
    return f"{INDENT}{head}{before}{after}{tail}\n{INDENT}{' ' * (len(head) + _columns(before))}^"


def _visible(text: str) -> str:
    """The text without tabs and control characters, which would move the caret."""
    return "".join(char if char.isprintable() else " " for char in text)


def _columns(text: str) -> int:
    """Columns on a terminal: East Asian wide characters take two, combining ones no column."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)

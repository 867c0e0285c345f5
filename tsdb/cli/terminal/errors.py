"""Prints errors of the command: one line on stderr, with exit code 1 for a failure and 2 for a misuse.

An error in an expression or a selector is followed by the line that it names, and a caret below the position. A bug
shows Python's traceback.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import NoReturn

import typer

from tsdb.model.errors import TsdbError
from tsdb.model.secrets import masked

SHOWN_CHARS_MAX = 200  # Characters of a bad input that a message shows.

# Characters of an excerpt before and after the position. With the indent and two cuts they are 80.
BEFORE, AFTER = 48, 24
INDENT = "  "
CUT = "..."

# Servers use the names of request fields; on the command line these are options.
_OPTIONS = {
    "allow_holes": "--allow-holes",
    "allow_stale": "--allow-stale",
    "lookback_ms": "--lookback",
    "max_lag_ms": "--max-lag",
    "record_offset": "record offset",
    "step_ms": "--step",
}
_FIELDS = re.compile(rf"\b({'|'.join(_OPTIONS)})\b")
# The parser names types of Python: "not a valid int range".
_WHOLE_NUMBER = re.compile(r"\bnot a valid int(?:eger)?(?: range)?\b")
_NUMBER = re.compile(r"\bnot a valid float(?: range)?\b")
_PLACE = re.compile(r"(\d+):(\d+): parse error: ")


class BadText(typer.BadParameter):
    """A misuse in the text of an argument. message: begins with the position where it has one."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.excerpt = excerpt(text, message)


def shown(text: str) -> str:
    """A bad input, quoted and shortened for a message."""
    return repr(text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "...")


def fail(message: str, detail: str = "") -> NoReturn:
    """End the command with exit code 1. detail: lines that follow the error."""
    print(f"error: {one_line(message)}" + (f"\n{detail}" if detail else ""), file=sys.stderr)
    raise typer.Exit(1)


def error_text(error: TsdbError | OSError) -> str:
    """The message of a failure: one of our errors with its reason, a file error with the file's name."""
    if isinstance(error, TsdbError):
        return f"{with_option_names(error.message)} ({error.reason})"
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def with_option_names(text: str) -> str:
    """The text of a server, with the names of options for those of request fields."""
    return _FIELDS.sub(lambda field: _OPTIONS[field[0]], text)


def misuse_text(error: typer.TyperException) -> str:
    """The message of a misuse, with the command whose help to read. A group without a verb gets its help page."""
    message, ctx = error.format_message(), getattr(error, "ctx", None)
    if ctx is not None and message == ctx.get_help():
        return message
    text = _NUMBER.sub("not a number", _WHOLE_NUMBER.sub("not a whole number", one_line(message)))
    text = text.removeprefix("Invalid value: ").rstrip(".")
    # Errors of the option parser may not contain the command.
    hint = f" (see: {ctx.command_path if ctx is not None else 'tsdb COMMAND'} --help)"
    below = f"\n{error.excerpt}" if isinstance(error, BadText) and error.excerpt else ""
    return f"error: {text[:1].lower()}{text[1:]}{hint}{below}"


def one_line(text: str) -> str:
    """The text without line breaks and without secrets."""
    return masked(" ".join(text.split()))


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

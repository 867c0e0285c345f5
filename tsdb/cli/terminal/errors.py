"""Prints errors of the command: one line on stderr, with exit code 1 for a failure and 2 for a misuse.

A bug shows Python's traceback.
"""

from __future__ import annotations

import re
import sys
from typing import NoReturn

import typer

from tsdb.model.errors import TsdbError
from tsdb.model.secrets import masked

SHOWN_CHARS_MAX = 200  # Characters of a bad input that a message shows.

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
    return f"error: {text[:1].lower()}{text[1:]}{hint}"


def one_line(text: str) -> str:
    """The text without line breaks and without secrets."""
    return masked(" ".join(text.split()))

"""How the command fails: one line on stderr, with exit code 1 for what went wrong and 2 for a misuse.

A traceback means a bug, and is left to Python.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from tsdb.model.errors import TsdbError


class TsdbGroup(TyperGroup):
    """The root command: turns our errors, and those of files, into exit codes."""

    def invoke(self, ctx: Any) -> Any:  # Typer has no public name for the class.
        try:
            return super().invoke(ctx)
        except TsdbError as error:
            fail(f"{error.message} ({error.reason})")
        except BrokenPipeError:
            raise  # The reader of our output left; the library ends quietly.
        except OSError as error:
            fail(str(error))


def fail(message: str) -> NoReturn:
    """End the command with exit code 1."""
    print(f"error: {one_line(message)}", file=sys.stderr)
    raise typer.Exit(1)


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())

"""Groups and commands of `tsdb`: help without cut words at any width, and `-h`.

Every part of the command line is a `Commands`, so that all parts have the same help.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

NARROW = 70  # Width in columns. A narrower terminal shows a long option name on the line above its explanation.
INDENT = 2  # Indent of the lists on a help page.
NAME_COLUMNS = 30
NAME_COLUMNS_NARROW = 14


class TsdbCommand(TyperCommand):
    """A command with a help page for narrow terminals."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # Typer has no public names for these classes.
        write_parameters(self, ctx, formatter)


class TsdbGroup(TyperGroup):
    """A group whose help page shows the whole first sentence of each command."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_parameters(self, ctx, formatter)
        for title, rows in self.sections(ctx):
            with formatter.section(title):
                formatter.write_dl(rows, col_max=name_columns(formatter))

    def sections(self, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
        """Titles of the lists of commands, with the rows of each."""
        return [("Commands", self.summaries(ctx))]

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """Name and first sentence of each command."""
        return [(name, first_sentence(self.commands[name].help or "")) for name in self.list_commands(ctx)]


class Commands(typer.Typer):
    """A part of the command line with the group and command classes above."""

    def __init__(self, help: str, *, cls: type[TsdbGroup] = TsdbGroup, **options: Any) -> None:
        options = {"add_completion": False, "no_args_is_help": True, "rich_markup_mode": None} | options
        # Subcommands inherit the names of the help option from their parent.
        settings = {"help_option_names": ["-h", "--help"]}
        super().__init__(help=help, cls=cls, context_settings=settings, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        return super().command(name, **({"cls": TsdbCommand} | options))


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Write the sections Arguments and Options of a help page."""
    records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            records["Arguments" if parameter.param_type_name == "argument" else "Options"].append(record)
    for title, rows in records.items():
        if rows:
            with formatter.section(title):
                fitting = [(fitted(name, formatter.width - INDENT), text) for name, text in rows]
                formatter.write_dl(fitting, col_max=name_columns(formatter))


def fitted(name: str, width: int) -> str:
    """The name of a switch, on two lines when both of its forms do not fit on one."""
    return name if len(name) <= width else name.replace(" / ", " /\n" + " " * INDENT)


def name_columns(formatter: Any) -> int:
    """The longest name, in columns, that has its explanation on the same line."""
    return NAME_COLUMNS if formatter.width >= NARROW else NAME_COLUMNS_NARROW


def first_sentence(text: str) -> str:
    """The first sentence of a help text, on one line."""
    paragraph = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."

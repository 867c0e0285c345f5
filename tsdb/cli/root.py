"""The command `tsdb` itself: the commands of the table, each imported when it is chosen."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import typer

from tsdb.cli.commands import COMMANDS, SECTIONS, Row
from tsdb.cli.options.groups import Commands, TsdbGroup
from tsdb.cli.terminal.errors import error_text, fail, misuse_text
from tsdb.model.errors import TsdbError


class RootGroup(TsdbGroup):
    """The command `tsdb`: a failure is one line on stderr and exit code 1, a misuse one line and exit code 2."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Typer declares a mutable mapping, but only reads this one.
        self.commands = LoadedCommands(COMMANDS)  # type: ignore[assignment]

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def sections(self, ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
        return [(title, [(row.name, row.text) for row in rows]) for title, rows in SECTIONS.items()]

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any) -> NoReturn:
        try:
            code = super().main(args, prog_name, standalone_mode=False, **extra)
        except typer.TyperException as error:
            print(misuse_text(error), file=sys.stderr)
            sys.exit(error.exit_code)
        except typer.Abort:
            print("error: aborted", file=sys.stderr)
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # The reader of our output has closed it. Typer then ends without a message.
        except (TsdbError, OSError) as error:
            fail(error_text(error))


class LoadedCommands(Mapping[str, Any]):
    """Commands by name. The names are known at once; a command is imported at its first use."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {row.name: row for row in rows}
        self._loaded: dict[str, Any] = {}  # Typer has no public name for the class of a command.

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _command(self._rows[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _command(row: Row) -> Any:
    part = row.load()
    if not isinstance(part, typer.Typer):
        function, part = part, Commands(row.text)
        part.command(row.name)(function)
    return typer.main.get_command(part)

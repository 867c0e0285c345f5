"""Entry point of the command `tsdb`. tsdb/cli/commands.py lists its commands."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.options.groups import Commands
from tsdb.cli.root import RootGroup
from tsdb.cli.terminal.streams import prepare_streams
from tsdb.ops.interpreter import import_without_collections

app = Commands(
    "A time-series store whose write-ahead log is Kafka.", cls=RootGroup, name="tsdb", pretty_exceptions_enable=False
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # Imported here: no other command needs it.

        print(f"tsdb {version('kafka-tsdb')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `tsdb` itself."""


def main() -> None:
    """Entry point of the console script `tsdb`."""
    import_without_collections()
    prepare_streams()
    app(prog_name="tsdb")


if __name__ == "__main__":
    main()

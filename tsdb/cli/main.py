"""The `tsdb` command with all its groups and commands."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli import roles
from tsdb.cli.chunks.command import chunks
from tsdb.cli.client_commands import add_client_commands
from tsdb.cli.config_show import config
from tsdb.cli.dlq.command import dlq
from tsdb.cli.history.command import history
from tsdb.cli.holes import holes
from tsdb.cli.log_command import log_command
from tsdb.cli.options.completion import completion
from tsdb.cli.options.groups import Commands, RootGroup
from tsdb.cli.spark.command import spark
from tsdb.cli.terminal.streams import prepare_streams
from tsdb.cli.topics import topics
from tsdb.cli.warmup import warmup

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


roles.register(app)
add_client_commands(app)
app.add_typer(topics, name="topics")
app.add_typer(log_command, name="log")
app.add_typer(chunks, name="chunks")
app.add_typer(dlq, name="dlq")
app.add_typer(history, name="history")
app.add_typer(holes, name="holes")
app.add_typer(spark, name="spark")
app.command("warmup")(warmup)
app.command("completion")(completion)
app.add_typer(config, name="config")


def main() -> None:
    """Entry point of the console script `tsdb`."""
    prepare_streams()
    app(prog_name="tsdb")


if __name__ == "__main__":
    main()

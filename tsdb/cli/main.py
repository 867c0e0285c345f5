"""The `tsdb` command: all its parts put together."""

from __future__ import annotations

import typer

from tsdb.cli import roles
from tsdb.cli.chunks import chunks
from tsdb.cli.client_commands import add_client_commands
from tsdb.cli.config_show import config
from tsdb.cli.dlq import dlq
from tsdb.cli.errors import TsdbGroup
from tsdb.cli.history import history
from tsdb.cli.holes import holes
from tsdb.cli.log_command import log_command
from tsdb.cli.spark.command import spark
from tsdb.cli.topics import topics
from tsdb.cli.warmup import warmup

app = typer.Typer(
    name="tsdb",
    cls=TsdbGroup,
    help="A time-series store whose write-ahead log is Kafka.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
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
app.add_typer(config, name="config")


def main() -> None:
    """Entry point."""
    app(prog_name="tsdb")


if __name__ == "__main__":
    main()

"""The commands that call a server."""

from __future__ import annotations

import typer

from tsdb.cli.agent.command import agent
from tsdb.cli.coverage import coverage, status
from tsdb.cli.query import query
from tsdb.cli.series import labels, series
from tsdb.cli.watch import watch
from tsdb.cli.write import write

COMMANDS = (write, agent, query, series, labels, coverage, watch, status)


def add_client_commands(app: typer.Typer) -> None:
    """Add the commands to the root command."""
    for command in COMMANDS:
        app.command(command.__name__)(command)

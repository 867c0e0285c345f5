"""`tsdb queries` lists the running queries of a querier, and ends one early."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.connection import Connection, connected
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.client import InvalidRequest, QueryInfo

TEXT_CHARS_MAX = 120  # Characters of a query in the table, so that a row fits a line of a wide terminal.


@connected()
def queries(
    connection: Connection,
    cancel: Annotated[
        int | None, typer.Option("--cancel", min=1, metavar="NUMBER", help="End the query with this number.")
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """List the running queries of a querier, over HTTP and gRPC, or cancel one.

    The table shortens long queries; JSON has up to 2,000 characters of each.
    """
    with connection.open() as client:
        if cancel is None:
            _print(client.queries(), output)
            return
        if not client.cancel_query(cancel):
            raise InvalidRequest(f"no query {cancel} runs, or it has ended by now", reason="no_such_query")
    if output == "json":
        print_json({"cancelled": cancel})
    else:
        note(f"query {cancel} is cancelled")


def _print(running: list[QueryInfo], output: str) -> None:
    if output == "json":
        print_json({"queries": [asdict(query) for query in running]})
        return
    print_table(
        ("number", "age s", "kind", "peer", "query"),
        ((query.number, f"{query.age_s:.1f}", query.kind, query.peer or "-", _line(query.text)) for query in running),
        right=("number", "age s"),
    )


def _line(text: str) -> str:
    """A query on one line, shortened."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARS_MAX else line[: TEXT_CHARS_MAX - 1] + "…"

"""Options that the jobs share which build chunks from the log: range of windows and packs."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.cli.options.arguments import Milliseconds, instant
from tsdb.model.errors import InvalidRequest

From = Annotated[
    Milliseconds, typer.Option("--from", parser=instant, metavar="TIME", help="Start of the first window.")
]
To = Annotated[Milliseconds, typer.Option("--to", parser=instant, metavar="TIME", help="End of the last window.")]
Packs = Annotated[
    list[str] | None,
    typer.Option("--pack", metavar="HEX", help="Only this pack, as in `tsdb chunks dump`; may be repeated."),
]


def pack_ids(given: list[str] | None) -> frozenset[int] | None:
    """The ids of the given packs; None for all packs. Raises BadParameter."""
    from spark_backfill.arguments import pack_ids as parsed

    try:
        return parsed(given)
    except InvalidRequest as error:
        raise typer.BadParameter(error.message) from None

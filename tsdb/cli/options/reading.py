"""Options of reads: the lag and the losses that a command accepts."""

from __future__ import annotations

from typing import Annotated

import typer

from tsdb.answer.spec import ReadOptions
from tsdb.cli.options.arguments import Milliseconds, duration

AllowStale = Annotated[bool, typer.Option("--allow-stale", help="Answer although a partition lags.")]
MaxLag = Annotated[
    Milliseconds | None,
    typer.Option(
        "--max-lag",
        parser=duration,
        metavar="DURATION",
        help="Refuse where a larger lag touches the answer, as in 1s; by default it is a warning.",
    ),
]


def read_options(allow_stale: bool, max_lag: Milliseconds | None, *, allow_holes: bool = False) -> ReadOptions:
    """The options of a read. Raises BadParameter for options that exclude each other."""
    if allow_stale and max_lag is not None:
        raise typer.BadParameter("give --allow-stale or --max-lag, not both")
    return ReadOptions(allow_stale=allow_stale, allow_holes=allow_holes, max_lag_ms=max_lag.ms if max_lag else None)

"""`tsdb query`: samples of matching series."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from tsdb.cli.options.arguments import End, Last, Milliseconds, SelectorArgument, Start, duration, recent_range
from tsdb.cli.options.connection import Connection, connected
from tsdb.cli.result_output import ResultFormat, open_target, print_result, write_result
from tsdb.client import ReadOptions

Aggregation = Literal["last", "avg", "min", "max", "sum", "count"]
TABLE_ROWS = 100
LAST_N_MAX = (1 << 32) - 1  # The largest value of the request's field.


@connected()
def query(
    connection: Connection,
    selector: SelectorArgument,
    start: Start = None,
    end: End = None,
    last: Last = None,
    step: Annotated[
        Milliseconds | None,
        typer.Option(
            "--step", parser=duration, metavar="DURATION", help="One sample for each step, by --agg; such as 60 or 1m."
        ),
    ] = None,
    agg: Annotated[Aggregation | None, typer.Option("--agg", help="Aggregation of the samples of a step.")] = None,
    last_n: Annotated[
        int, typer.Option("--last-n", min=0, max=LAST_N_MAX, help="Only the newest N samples of each series; 0: all.")
    ] = 0,
    downsampled: Annotated[
        bool,
        typer.Option("--downsampled", help="Steps in the past may use the series of `tsdb spark downsample`."),
    ] = False,
    encoding: Annotated[
        Literal["raw", "columns"],
        typer.Option("--encoding", help="Encoding on the wire; columns is smaller and needs compiled kernels."),
    ] = "raw",
    allow_stale: Annotated[bool, typer.Option("--allow-stale", help="Answer although a partition lags.")] = False,
    allow_holes: Annotated[
        bool, typer.Option("--allow-holes", help="Answer although a named loss is in the range.")
    ] = False,
    output: Annotated[ResultFormat, typer.Option("--output", help="Output format.")] = "table",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file instead of stdout.")] = None,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Most series in the table; 0: all.")] = TABLE_ROWS,
) -> None:
    """Print samples of the series that match SELECTOR, exact or an error; by default of the last hour.

    --start alone reads up to now; --end alone reads the hour before it.

    JSON is {"series": [{"labels", "ts_ms", "values"}], "samples", "partitions"}. CSV and Parquet have one row for each
    sample: labels (sorted JSON), ts_ms, value. Only Parquet keeps the payload of NaNs.
    """
    span = recent_range(start, end, last)
    _check_form(step, agg, last_n, encoding, downsampled)
    _check_target(output, out)
    with connection.open() as client:
        result = client.select(
            selector,
            span.start_ms,
            span.end_ms,
            step_ms=step.ms if step else 0,
            agg=agg,
            last_n=last_n,
            downsampled=downsampled,
            encoding=encoding,
            options=ReadOptions(allow_stale=allow_stale, allow_holes=allow_holes),
        )
    if output == "table":
        print_result(result, span, rows)
        return
    with open_target(out) as target:
        write_result(result, output, target)


def _check_form(step: Milliseconds | None, agg: str | None, last_n: int, encoding: str, downsampled: bool) -> None:
    if (step is None) != (agg is None):
        raise typer.BadParameter("--step and --agg go together")
    if downsampled and step is None:
        raise typer.BadParameter("--downsampled goes with --step and --agg")
    if last_n and step is not None:
        raise typer.BadParameter("give --last-n or --step, not both: a step is one sample already")
    if encoding == "columns" and (last_n or step is not None):
        raise typer.BadParameter("--encoding columns goes without --step and --last-n: leave it out")


def _check_target(output: ResultFormat, out: Path | None) -> None:
    if output == "table" and out is not None:
        raise typer.BadParameter("--out goes with json, csv or parquet")
    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise typer.BadParameter(f"--out {out} {'is a folder' if out.is_dir() else 'is in a folder that is not there'}")
    if output == "parquet" and out is None and sys.stdout.isatty():
        raise typer.BadParameter("Parquet is not for a terminal: give --out FILE")

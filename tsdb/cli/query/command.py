"""Has the options of `tsdb query`, and chooses between PromQL and raw samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from tsdb.cli.options.arguments import (
    Last,
    Milliseconds,
    Start,
    duration,
    instant,
    recent_range,
    selector,
)
from tsdb.cli.options.connection import AllowStale, Connection, MaxLag, connected, read_options
from tsdb.cli.query import promql, raw
from tsdb.cli.query.promql import steps_of
from tsdb.cli.query.raw import Aggregation, Encoding, RawForm
from tsdb.cli.query.result_output import OutputTarget, ResultFormat, result_format

TABLE_ROWS = 100
LAST_N_MAX = (1 << 32) - 1  # The largest value of the request's field.


@connected()
def query(
    connection: Connection,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPR", help='PromQL; with --raw a selector of series: name{label="value",other=~"re.*"}.'
        ),
    ],
    at: Annotated[
        Milliseconds | None,
        typer.Option(
            "--at",
            parser=instant,
            metavar="TIME",
            help="The time of the value, in the forms of --start; by default now.",
        ),
    ] = None,
    start: Start = None,
    end: Annotated[
        Milliseconds | None,
        typer.Option("--end", parser=instant, metavar="TIME", help="End, included; with --raw excluded."),
    ] = None,
    last: Last = None,
    step: Annotated[
        Milliseconds | None,
        typer.Option(
            "--step",
            parser=duration,
            metavar="DURATION",
            help="Time between values, such as 60 or 1m; by default about 240 values. With --raw one sample for each"
            " step, by --agg.",
        ),
    ] = None,
    lookback: Annotated[
        Milliseconds | None,
        typer.Option(
            "--lookback",
            parser=duration,
            metavar="DURATION",
            help="Greatest age of the sample that a value comes from; by default 5m.",
        ),
    ] = None,
    raw_samples: Annotated[bool, typer.Option("--raw", help="Samples as they are, without PromQL.")] = False,
    agg: Annotated[
        Aggregation | None, typer.Option("--agg", help="With --raw: aggregation of the samples of a step.")
    ] = None,
    last_n: Annotated[
        int,
        typer.Option(
            "--last-n", min=0, max=LAST_N_MAX, help="With --raw: only the newest N samples of each series; 0: all."
        ),
    ] = 0,
    downsampled: Annotated[
        bool,
        typer.Option(
            "--downsampled", help="With --raw: steps in the past may use the series of `tsdb spark downsample`."
        ),
    ] = False,
    encoding: Annotated[
        Encoding | None,
        typer.Option(
            "--encoding",
            help="With --raw: encoding on the wire, by default raw; columns is smaller and needs compiled kernels.",
        ),
    ] = None,
    allow_stale: AllowStale = False,
    max_lag: MaxLag = None,
    allow_holes: Annotated[
        bool, typer.Option("--allow-holes", help="Answer although a named loss is in the range.")
    ] = False,
    output: Annotated[
        ResultFormat | None,
        typer.Option("--output", help="Output format; by default that of the name of --out, else a table."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write to this file, such as x.csv, instead of stdout."),
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="CSV and Parquet with the time as a date and a column for each label.")
    ] = False,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Most series in the table; 0: all.")] = TABLE_ROWS,
) -> None:
    """Print the value of a PromQL expression at one time or over a range, or with --raw samples; exact or an error.

    --start, --end, --last and --step ask for a range. --start alone reads up to now, --end alone and --step alone read
    one hour. --raw reads the samples of the last hour by default. Warnings and infos are on stderr. An expression that
    begins with - goes behind --, at the end.

    JSON is {"series": [{"labels", "ts_ms", "values"}], "samples", "kind", "text", "warnings", "infos"}, where kind is
    vector, ranges, scalar or text; with --raw it has "partitions" instead of the last four. CSV and Parquet have one
    row for each value: labels (sorted JSON), ts_ms, value; with --wide time, a column for each label, value, which
    spreadsheets open and `tsdb write` reads. Only Parquet keeps the payload of NaNs.

    Native histograms have a separate table, with the count, the sum and quantiles of the last one. JSON has them in
    "histograms" of a series, as the HTTP API does, and Parquet in a column of structs.
    """
    target, form = (
        OutputTarget(result_format(output, out), out, rows, wide),
        RawForm(step, agg, last_n, downsampled, encoding or "raw"),
    )
    target.check()
    options = read_options(allow_stale, max_lag, allow_holes=allow_holes)
    if raw_samples:
        _refuse({"--at": at, "--lookback": lookback}, "goes without --raw")
        span = recent_range(start, end, last)
        form.check()
        raw.print_samples(connection, selector(expression), span, form, options, target)
    else:
        given = {"--agg": agg, "--last-n": last_n, "--downsampled": downsampled, "--encoding": encoding}
        _refuse(given, "goes with --raw, which reads samples without PromQL")
        steps = steps_of(at, start, end, last, step)
        promql.print_value(connection, expression, steps, lookback, options, target)


def _refuse(given: Mapping[str, object], why: str) -> None:
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"{name} {why}")

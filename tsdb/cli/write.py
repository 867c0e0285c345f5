"""`tsdb write`: writes recorded samples from a file to the gateway."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.connection import WRITE_TIMEOUT, Connection, connected
from tsdb.cli.options.layout import with_columns
from tsdb.cli.samples.rows import SampleRows, join_rows
from tsdb.cli.samples.source import Format, format_of, open_source, read_rows, readable
from tsdb.cli.samples.upload import Upload, live_times, send_as_due
from tsdb.cli.terminal.errors import one_line
from tsdb.cli.terminal.output import json_line, note, print_json, print_table
from tsdb.cli.terminal.progress import progress_bar
from tsdb.model.clock import SystemClock
from tsdb.model.errors import TsdbError
from tsdb.model.import_layout import ColumnNames

Summary = dict[str, int | float]

IMPORT_OLDER = ": `tsdb import` takes older samples"


@connected(timeout=WRITE_TIMEOUT)
@with_columns
def write(
    connection: Connection,
    file: Annotated[Path, typer.Argument(parser=readable, metavar="FILE|-", help="- is stdin.")],
    form: Annotated[Format | None, typer.Option("--format", help="Format of the file; by default by its name.")] = None,
    shift_to_now: Annotated[
        bool, typer.Option("--shift-to-now", help="Add one constant to all times, so that the newest sample is now.")
    ] = False,
    as_live: Annotated[
        bool, typer.Option("--as-live", help="Move all times to start now, and send each sample at its time.")
    ] = False,
    speed: Annotated[float, typer.Option("--speed", help="With --as-live: how many times faster than recorded.")] = 1.0,
    round_times: Annotated[
        bool, typer.Option("--round-times", help="Round times finer than a millisecond down; else they are refused.")
    ] = False,
    *,
    columns: ColumnNames,
    output: TableOrJson = "table",
) -> None:
    """Write samples from FILE, in the order of their times.

    Parquet and CSV have the columns labels (JSON text; in Parquet also a map or struct), ts_ms and value; or columns
    of any names. Without options the time is the column ts, time, timestamp, datetime or date, columns of numbers are
    values, and other columns are labels, as a line on stderr tells. A column of values names the metric; for a column
    `value` the file does. Parquet with labels, ts_ms and value may have native histograms and start timestamps in the
    columns histogram and start_ms or start_ts, as `tsdb query --raw` and exports write them.

    Times are ms since the epoch, ISO 8601 (UTC without a zone), or in Parquet a timestamp or a date; a rest below a
    millisecond is refused unless --round-times is given. JSON lines are objects with labels, ts_ms and value; value
    may be "NaN", "+Inf" or "-Inf". prom is the Prometheus text format; openmetrics is OpenMetrics, with times in
    seconds. A .prom file that ends with # EOF is OpenMetrics too. Exemplars are counted and dropped.

    Parquet is sent as a whole in order of time. Other formats are sent in batches of a million rows, each in order of
    time. --shift-to-now and --as-live read the whole file first.

    At the end prints samples, series, requests, seconds and refused, and shift_ms, or base_ms and speed.
    """
    if as_live and shift_to_now:
        raise typer.BadParameter("give --as-live or --shift-to-now")
    if speed != 1.0 and not as_live:
        raise typer.BadParameter("--speed goes with --as-live")
    if not 0 < speed < float("inf"):
        raise typer.BadParameter(f"--speed is {speed}; it must be above 0")
    chosen = format_of(file, form)
    if columns != ColumnNames() and chosen not in ("csv", "parquet"):
        raise typer.BadParameter(f"options that name columns go with csv and parquet; the format is {chosen}")
    clock = SystemClock()
    with connection.open() as client, open_source(file) as source, progress_bar("sent", "samples") as (done, expect):
        upload = Upload(client, done)
        found = read_rows(
            source,
            str(file),
            chosen,
            now_ms=clock.now_ms(),
            round_times=round_times,
            columns=columns,
            remark=note,
        )
        batches = _seen(found, str(file), upload, expect)
        try:
            if shift_to_now:
                extra = _shifted(batches, upload, clock.now_ms())
            elif as_live:
                extra = _live(batches, upload, clock, speed)
            else:
                extra = _as_they_are(batches, upload)
        except TsdbError:
            if upload.tally.requests:
                note(f"sent before the error: {json_line(upload.tally.summary()).strip()}")
            raise
    _report(upload, extra, output)


def _seen(batches: Iterator[SampleRows], name: str, upload: Upload, expect: object) -> Iterator[SampleRows]:
    assert callable(expect)
    samples = 0
    for rows in batches:
        rows.refuse_other_units(name, samples)
        samples += len(rows)
        upload.saw(rows)
        expect(len(rows))
        yield rows.by_time()


def _as_they_are(batches: Iterator[SampleRows], upload: Upload) -> Summary:
    for rows in batches:
        upload.send(rows)
    return {}


def _shifted(batches: Iterator[SampleRows], upload: Upload, now_ms: int) -> Summary:
    rows = join_rows(list(batches)).by_time()
    shift_ms = now_ms - int(rows.ts_ms[-1]) if len(rows) else 0
    upload.send(rows.at(rows.ts_ms + shift_ms))
    return {"shift_ms": shift_ms}


def _live(batches: Iterator[SampleRows], upload: Upload, clock: SystemClock, speed: float) -> Summary:
    rows = join_rows(list(batches)).by_time()
    base_ms = clock.now_ms()
    moved = rows.at(live_times(rows.ts_ms, base_ms, speed))
    send_as_due(moved.ts_ms, clock, lambda start, end: upload.send(moved, start, end))
    return {"base_ms": base_ms, "speed": int(speed) if speed.is_integer() else speed}


def _report(upload: Upload, extra: Summary, output: str) -> None:
    summary = upload.tally.summary() | extra
    if output == "json":
        print_json(summary)
    else:
        print_table(list(summary), [list(summary.values())], right=summary)
    if upload.tally.refused:
        for reason in upload.tally.offenders:
            note(f"refused: {one_line(reason)}" + (IMPORT_OLDER if reason.endswith("(too_old)") else ""))
        sys.stdout.flush()
        raise typer.Exit(1)

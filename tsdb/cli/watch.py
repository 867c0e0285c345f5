"""`tsdb watch` prints a live tail of samples."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Literal

import typer

from tsdb.cli.options.arguments import Milliseconds, SelectorArgument, duration
from tsdb.cli.options.connection import Connection, connected
from tsdb.cli.terminal.output import json_line, json_value, note, print_warnings
from tsdb.client import WatchBatch


@connected()
def watch(
    connection: Connection,
    selector: SelectorArgument,
    for_: Annotated[
        Milliseconds | None,
        typer.Option("--duration", parser=duration, metavar="DURATION", help="End after this; by default with Ctrl-C."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="End after N samples; 0: never.")] = 0,
    output: Annotated[Literal["jsonl"], typer.Option("--output", help="One JSON object a line.")] = "jsonl",
) -> None:
    """Print samples of matching series as the store applies them, each once; reconnects after a failure.

    Lines are {"labels", "ts_ms", "value", "partition", "record_offset"}. A native histogram has "histogram" in place of
    "value", with its count and sum.
    """
    left = limit
    lagging: set[int] = set()
    duration_s = None if for_ is None else for_.ms / 1000
    # Ctrl-C is the normal end of a watch, not a failure.
    with connection.open() as client, contextlib.suppress(KeyboardInterrupt):
        for batch in client.watch(selector, duration_s=duration_s, reconnect_s=connection.timeout.ms / 1000):
            _note_lag(batch, lagging)
            lines = _lines(batch)[: left or None]
            sys.stdout.write("".join(lines))
            sys.stdout.flush()
            left -= len(lines)
            if limit and left <= 0:
                return


def _note_lag(batch: WatchBatch, lagging: set[int]) -> None:
    """Print on stderr when a lag of the batch's partition begins and ends. lagging: partitions with a lag."""
    if bool(batch.warning) == (batch.partition in lagging):
        return
    if batch.warning:
        lagging.add(batch.partition)
        print_warnings([batch.warning])
    else:
        lagging.remove(batch.partition)
        note(f"partition {batch.partition} has caught up")


def _lines(batch: WatchBatch) -> list[str]:
    labels = batch.labels
    columns = (batch.series_ids.tolist(), batch.ts_ms.tolist(), _shown(batch), batch.record_offsets.tolist())
    return [
        json_line(
            {
                "labels": labels[series_id],
                "ts_ms": ts_ms,
                **shown,
                "partition": batch.partition,
                "record_offset": record_offset,
            }
        )
        for series_id, ts_ms, shown, record_offset in zip(*columns, strict=True)
    ]


def _shown(batch: WatchBatch) -> list[dict[str, object]]:
    """The value of each sample, or the count and the sum of its histogram."""
    values = [json_value(value) for value in batch.values.tolist()]
    details = batch.details
    if details is None or details.histograms is None or details.histogram_of is None:
        return [{"value": value} for value in values]
    counts = details.histograms.counts.tolist()
    return [
        {"value": value} if at < 0 else {"histogram": {"count": json_value(counts[at]), "sum": value}}
        for value, at in zip(values, details.histogram_of.tolist(), strict=True)
    ]

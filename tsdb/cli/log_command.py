"""`tsdb log`: show the records of the log, and its first and last offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.log_access import LOG_SETTINGS, OnePartition, Partition, chosen, opened_log
from tsdb.cli.options.arguments import Milliseconds, TableOrJson, instant
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import print_json, print_table, row_cells
from tsdb.config import CommonSettings
from tsdb.log.interface import METRICS, Log, RecordBatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RECORD_COLUMNS = (
    "offset",
    "broker time",
    "state",
    "bytes",
    "packs",
    "samples",
    "histograms",
    "starts",
    "first",
    "last",
)
OFFSET_COLUMNS = ("partition", "low", "high", "records", "first", "last", "at")

log_command = Commands("Records and offsets of the log.")


@log_command.command("dump")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def dump(
    settings: CommonSettings,
    partition: OnePartition,
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="First offset; by default the first in the log.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most records to show.")] = 100,
    output: TableOrJson = "table",
) -> None:
    """Print records of one partition of the log, one in each row: samples, ticks, and unreadable records."""
    from tsdb.log.records import read_batches

    with opened_log(settings) as log:
        chosen(log, partition)
        rows: list[dict[str, object]] = []
        for batch in read_batches(log, METRICS, partition, start):
            rows += _records(batch)
            if len(rows) >= limit:
                break
    rows = rows[:limit]
    if output == "json":
        for row in rows:
            print_json(row)
        return
    print_table(
        RECORD_COLUMNS, map(row_cells, rows), right=("offset", "bytes", "packs", "samples", "histograms", "starts")
    )


@log_command.command("offsets")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def offsets(
    settings: CommonSettings,
    partition: Partition = None,
    at: Annotated[
        Milliseconds | None,
        typer.Option("--at", parser=instant, metavar="TIME", help="Also the first offset from this broker time on."),
    ] = None,
    output: TableOrJson = "table",
) -> None:
    """Print the first and last offset of each partition of the log, with their broker times."""
    with opened_log(settings) as log:
        rows = list(_ends(log, list(chosen(log, partition)), at))
    if output == "json":
        print_json({"partitions": rows})
        return
    print_table(OFFSET_COLUMNS, map(row_cells, rows), right=("partition", "low", "high", "records", "at"))


def _records(batch: RecordBatch) -> Iterator[dict[str, object]]:
    from tsdb.codec.records.log_record import (
        FLAG_EXEMPLARS,
        FLAG_IMPORT_TICK,
        STATUS_CORRUPT,
        STATUS_OK,
        decode_records,
    )

    records = decode_records(batch.values, batch.value_starts)
    details = records.details
    for index in range(len(batch.offsets)):
        packs = int(records.pack_start[index + 1] - records.pack_start[index])
        first, last = int(records.sample_start[index]), int(records.sample_start[index + 1])
        ts_ms = records.ts_ms[first:last]
        if records.status[index] != STATUS_OK:
            state = "corrupt" if records.status[index] == STATUS_CORRUPT else "unknown version"
        elif records.flags[index] & FLAG_IMPORT_TICK:
            state = "import tick"
        elif records.flags[index] == FLAG_EXEMPLARS:
            state = "exemplars"
        else:
            state = "samples" if len(ts_ms) else "tick"
        yield {
            "offset": int(batch.offsets[index]),
            "broker_ms": int(batch.broker_ms[index]),
            "state": state,
            "bytes": int(batch.value_starts[index + 1] - batch.value_starts[index]),
            "packs": packs,
            "samples": len(ts_ms),
            "histograms": _count(None if details is None else details.histogram_of, first, last, -1),
            "starts": _count(None if details is None else details.start_ms, first, last, 0),
            "first_ms": int(ts_ms.min()) if len(ts_ms) else None,
            "last_ms": int(ts_ms.max()) if len(ts_ms) else None,
        }


def _count(column: NDArray[np.int64] | None, first: int, last: int, none: int) -> int:
    """How many of the samples [first, last) have a value in a column of details. none: what stands for none."""
    return 0 if column is None else int((column[first:last] != none).sum())


def _ends(log: Log, partitions: list[int], at: Milliseconds | None) -> Iterator[dict[str, object]]:
    from tsdb.log.records import first_records, last_records

    marks = log.watermarks(METRICS, partitions)
    firsts = first_records(log, METRICS, {p: marks[p].low for p in partitions if marks[p].low < marks[p].high})
    lasts = last_records(log, METRICS, partitions)
    found = log.offsets_for_times(METRICS, dict.fromkeys(partitions, at.ms)) if at else {}
    for partition in partitions:
        first, last = firsts.get(partition), lasts[partition]
        yield {
            "partition": partition,
            "low": marks[partition].low,
            "high": marks[partition].high,
            "records": marks[partition].high - marks[partition].low,
            "first_ms": first.broker_ms if first else None,
            "last_ms": last.broker_ms if last else None,
            "at": found.get(partition),
        }

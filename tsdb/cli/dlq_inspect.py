"""`tsdb dlq inspect` decodes the commits of a group of parallel consumers, running or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.log_access import LOG_SETTINGS, opened_log
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import print_json, print_table
from tsdb.config import CommonSettings
from tsdb.log.interface import CHUNKS, Log, Watermarks

if TYPE_CHECKING:
    from tsdb.log.interface import Position
    from tsdb.parallel_consumer.offsets.metadata import AttemptCounts

COLUMNS = ("topic", "partition", "position", "end", "lag", "finished above", "runs", "tried", "metadata")
TRIED_SHOWN = 20

Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group, without the log's prefix.")]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic of the group; may be repeated.")
]


@with_settings(CommonSettings, only=LOG_SETTINGS)
def inspect(settings: CommonSettings, group: Group, topic: Topics = None, output: TableOrJson = "table") -> None:
    """Print the progress of a group: positions, offsets finished above them, records that failed or crashed a process.

    Reads the last commits and changes nothing. Without `--topic` it uses `chunks`, the topic of the loader.
    """
    with opened_log(settings) as log:
        rows = [row for name in topic or [CHUNKS] for row in _rows(log, group, name)]
    if output == "json":
        print_json({"group": group, "partitions": rows})
    else:
        print_table(COLUMNS, map(_cells, rows), right=COLUMNS[1:7])


def _rows(log: Log, group: str, topic: str) -> list[dict[str, object]]:
    partitions = range(log.partitions(topic))
    with log.group(group) as member:
        commits = member.committed([(topic, partition) for partition in partitions])
    marks, topic_id = log.watermarks(topic, partitions), log.topic_id(topic)
    return [_row(topic, partition, commits[topic, partition], marks[partition], topic_id) for partition in partitions]


def _row(topic: str, partition: int, commit: Position | None, marks: Watermarks, topic_id: str) -> dict[str, object]:
    from tsdb.parallel_consumer.errors import MetadataRefused
    from tsdb.parallel_consumer.offsets.metadata import decode_metadata

    row: dict[str, object] = {"topic": topic, "partition": partition, "end": marks.high, "position": None}
    if commit is None:
        return row | {"metadata": "no commit"}
    at = commit.next_offset
    row |= {"position": at, "lag": marks.high - at}
    try:
        progress = decode_metadata(at, commit.metadata, topic_id)
    except MetadataRefused as error:
        return row | {"metadata": f"{error.reason}: {error.message}"}
    runs = progress.finished.tolist()
    attempts = sorted(progress.attempts, key=lambda one: (-one.crashes, -one.failures, one.offset))
    return row | {
        "metadata": "ok" if commit.metadata else "none",
        "finished_above": sum(end - start for start, end in runs),
        "runs": runs,
        "tried": [_attempt_row(one) for one in attempts[:TRIED_SHOWN]],
        "tried_in_all": len(attempts),
        "tried_offsets": sum(one.span for one in attempts),
    }


def _attempt_row(one: AttemptCounts) -> dict[str, object]:
    """Row of one attempt. span: number of offsets from `offset` on. A range of columns is attempted as one."""
    return {
        "offset": one.offset,
        "span": one.span,
        "failures": one.failures,
        "crashes": one.crashes,
        "running": one.running,
    }


def _cells(row: dict[str, object]) -> list[object]:
    runs, tried = row.get("runs"), row.get("tried_offsets")
    finished = row.get("finished_above")
    run_count = len(runs) if isinstance(runs, list) else None
    first = (row[name] for name in ("topic", "partition", "position", "end"))
    return [*first, row.get("lag"), finished, run_count, tried, row["metadata"]]

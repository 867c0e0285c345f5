"""`tsdb dlq` lists, shows, replays and drops the dead letters of a parallel consumer, and shows its progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.dlq_inspect import inspect
from tsdb.cli.log_access import LOG_SETTINGS, OnePartition, Partition, chosen, opened_log
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.groups import Commands
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table, row_cells
from tsdb.config import CommonSettings
from tsdb.log.interface import CHUNKS_DLQ, Log
from tsdb.model.times import time_text

if TYPE_CHECKING:
    from tsdb.history.loader.dead_letters import DeadLetter

COLUMNS = ("partition", "offset", "given up", "what", "reason", "message", "from", "bytes")

Offset = Annotated[int, typer.Option("--offset", min=0, help="Offset of the dead letter.")]
SomeOffset = Annotated[int | None, typer.Option("--offset", min=0, help="Only this dead letter; needs --partition.")]
Yes = Annotated[bool, typer.Option("--yes", help="Apply the change; without it, only show it.")]

Topic = Annotated[
    str,
    typer.Option("--topic", metavar="NAME", help="The dead letter topic of the parallel consumer."),
]

dlq = Commands("Dead letters: records that the loader, or any parallel consumer, gave up.")
dlq.command("inspect")(inspect)


@dlq.command("ls")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def ls(
    settings: CommonSettings,
    topic: Topic = CHUNKS_DLQ,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most to show.")] = 100,
    output: TableOrJson = "table",
) -> None:
    """List dead letters, the oldest of each partition first."""
    with opened_log(settings) as log:
        rows = [_row(letter) for letter, _ in zip(_letters(log, topic, partition, None), range(limit), strict=False)]
    _print(rows, output)


@dlq.command("show")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def show(
    settings: CommonSettings,
    partition: OnePartition,
    offset: Offset,
    topic: Topic = CHUNKS_DLQ,
    value: Annotated[
        str | None, typer.Option("--value", metavar="FILE|-", help="Write the record's value to this file.")
    ] = None,
) -> None:
    """Print one dead letter with its headers and history, as JSON; `--value -` prints its value instead."""
    with opened_log(settings) as log:
        letter = next(_letters(log, topic, partition, offset))
    if value == "-":
        sys.stdout.buffer.write(letter.value or b"")
        return
    if value is not None:
        Path(value).write_bytes(letter.value or b"")
    headers = {name: data.decode(errors="replace") for name, data in letter.headers}
    key = None if letter.key is None else letter.key.hex()
    print_json({**_row(letter), "key": key, "story": letter.story, "headers": headers})


@dlq.command("replay")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def replay(
    settings: CommonSettings,
    topic: Topic = CHUNKS_DLQ,
    partition: Partition = None,
    offset: SomeOffset = None,
    yes: Yes = False,
    output: TableOrJson = "table",
) -> None:
    """Append records to their original partition again; the hole of a chunk is removed once the chunk is loaded.

    Shows the records; `--yes` replays them. They also stay dead letters until they are dropped.
    """
    from tsdb.history.loader.dead_letters import put_letter_back

    with opened_log(settings) as log:
        letters = list(_letters(log, topic, partition, offset))
        for letter in letters:
            letter.origin()  # Raises before the first replay if one letter has no usable origin.
        for letter in letters if yes else ():
            put_letter_back(log, letter, settings.times)
    _print([_row(letter) for letter in letters], output)
    note(f"{len(letters)} put back" if yes else f"{len(letters)} would be put back; `--yes` does it")


@dlq.command("drop")
@with_settings(CommonSettings, only=LOG_SETTINGS)
def drop(
    settings: CommonSettings,
    partition: OnePartition,
    through: Annotated[int, typer.Option("--through", min=0, help="Last offset to drop; all before it go too.")],
    topic: Topic = CHUNKS_DLQ,
    yes: Yes = False,
    output: TableOrJson = "table",
) -> None:
    """Delete dead letters of a partition permanently. Shows them; `--yes` deletes them. Their holes stay."""
    from tsdb.log.open import open_topics
    from tsdb.roles.log import log_settings

    with opened_log(settings) as log:
        letters = [letter for letter in _letters(log, topic, partition, None) if letter.offset <= through]
    if yes and letters:
        with open_topics(settings.log, prefix=settings.log_prefix, settings=log_settings(settings)) as admin:
            admin.trim(topic, {partition: letters[-1].offset + 1})
    _print([_row(letter) for letter in letters], output)
    note(f"{len(letters)} dropped" if yes else f"{len(letters)} would be dropped; `--yes` does it")


def _letters(log: Log, topic: str, partition: int | None, offset: int | None) -> Iterator[DeadLetter]:
    """The selected dead letters. Raises BadParameter when there is no dead letter at `offset`."""
    from tsdb.history.loader.dead_letters import read_dead_letters

    if offset is not None and partition is None:
        raise typer.BadParameter("--offset needs --partition")
    found = False
    for letter in read_dead_letters(log, chosen(log, partition, topic), topic):
        if offset is None or letter.offset == offset:
            found = True
            yield letter
    if offset is not None and not found:
        raise typer.BadParameter(f"partition {partition} has no dead letter at offset {offset}")


def _row(letter: DeadLetter) -> dict[str, object]:
    story = letter.story
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "given up": time_text(int(story["failed-at-ms"])) if story.get("failed-at-ms", "").isdigit() else None,
        "what": letter.summary,
        "reason": story.get("reason"),
        "message": story.get("message"),
        "from": f"{story.get('topic')}/{story.get('partition')}@{story.get('offset')}",
        "bytes": len(letter.value or b""),
    }


def _print(rows: list[dict[str, object]], output: str) -> None:
    if output == "json":
        print_json({"dead_letters": rows})
    else:
        print_table(COLUMNS, map(row_cells, rows), right=("partition", "offset", "bytes"))

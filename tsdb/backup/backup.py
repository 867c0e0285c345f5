"""Backup: writes history and compacted topics to a folder, part by part.

A finished part has a note with its files. A run over a folder with notes but no manifest writes only the missing parts:
all rows that the plan claims were in history before it, so they are in every later read too, unless history was emptied
or replaced. After each part that is read, the claims of the plan must still stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tsdb.backup.files import TableWriter
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import (
    MANIFEST,
    BackupFile,
    BackupPlan,
    Manifest,
    decode_files,
    encode_files,
    encode_manifest,
)
from tsdb.backup.plan import TOPICS, begin_plan, check_same
from tsdb.backup.tables import (
    CHUNKS,
    HOLES,
    SERIES,
    TOPIC_PREFIX,
    BackupTable,
    chunk_columns,
    hole_columns,
    record_columns,
    series_columns,
    topic_table,
)
from tsdb.history.interface import ChunkStore
from tsdb.history.shared_settings import HistoryAdmin
from tsdb.log.interface import Log
from tsdb.log.records import read_batches
from tsdb.model.clock import Clock

EVER_MS = 1 << 62
Advance = Callable[[int], None]
Row = tuple[tuple[object, ...], int]  # Columns of a row, and its bytes.


@dataclass(frozen=True, slots=True)
class BackupSource:
    """A log and its history. group_id: the group id of the loaders of this history."""

    log: Log
    store: ChunkStore
    admin: HistoryAdmin
    group_id: str


def back_up(
    folder: BackupFolder,
    source: BackupSource,
    clock: Clock,
    *,
    topics: Sequence[str] = TOPICS,
    expect: Advance = lambda parts: None,
    advance: Advance = lambda parts: None,
) -> Manifest:
    """Write a backup, or the rest of an interrupted one. expect, advance: numbers of parts.

    Raises the errors of begin_plan and check_same, and Unavailable while log, history or folder does not answer; the
    next run continues.
    """
    plan = begin_plan(folder, source.log, source.store, source.admin, source.group_id, topics, clock)
    expect(len(plan.parts))
    files: list[BackupFile] = []
    for part in plan.parts:
        files += _part(folder, source, plan, part)
        advance(1)
    manifest = Manifest(plan, clock.now_ms(), tuple(files))
    folder.put(MANIFEST, encode_manifest(manifest))
    return manifest


def _part(folder: BackupFolder, source: BackupSource, plan: BackupPlan, part: str) -> Sequence[BackupFile]:
    note = f"parts/{part}.json"
    if folder.has(note):
        return decode_files(folder.read(note), f"{folder.name}/{note}")
    name, _, number = part.partition("/")
    table, rows = _rows(source, plan, name, int(number))
    with TableWriter(folder, part, table) as writer:
        for columns, size in rows:
            writer.add(columns, size)
    check_same(f"the backup in {folder.name}", plan, source.log, source.store, "give a new folder")
    folder.put(note, encode_files(writer.files))
    return writer.files


def _rows(source: BackupSource, plan: BackupPlan, name: str, number: int) -> tuple[BackupTable, Iterator[Row]]:
    if name == CHUNKS.name:
        pieces = source.store.scan(plan.tokens[number])
        return CHUNKS, ((chunk_columns(row), len(row.value)) for piece in pieces for row in piece)
    if name == SERIES.name:
        rows = (row for piece in source.store.scan_series() for row in piece)
        return SERIES, ((series_columns(*row), len(row[0].canonical)) for row in rows)
    if name == HOLES.name:
        holes = source.store.holes(None, -EVER_MS, EVER_MS)
        return HOLES, ((hole_columns(one), 0) for one in holes)
    topic = name.removeprefix(TOPIC_PREFIX)
    return topic_table(topic), _records(source.log, topic, number)


def _records(log: Log, topic: str, partition: int) -> Iterator[Row]:
    for batch in read_batches(log, topic, partition):
        for record in map(batch.record, range(len(batch.offsets))):
            size = len(record.key or b"") + len(record.value or b"")
            yield record_columns(partition, record), size

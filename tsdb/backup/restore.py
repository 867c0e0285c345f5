"""Restores history: writes the rows first, then the commits of the loaders, then the claims about the rows.

A restore never writes `loaded`. The rows lack what came after the backup, such as an import that has ended and whose
reader was told so. A loader starts at the offsets of the restored rows and writes `loaded` at the ends of both topics
(tsdb.history.claims). Until then every read that needs history is refused. After an interrupted restore a loader starts
from zero: the rows are never taken for a whole history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tsdb.backup.checks import check_continuation, check_empty, check_log, check_settings
from tsdb.backup.files import read_groups
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import BackupPlan, Manifest
from tsdb.backup.positions import check_no_member, set_positions
from tsdb.backup.tables import CHUNKS, HOLES, SERIES, chunk_rows, hole_rows, series_rows
from tsdb.backup.writes import Begin, write_all
from tsdb.history.claims import RestoredClaim, restored_rows
from tsdb.history.interface import ChunkStore
from tsdb.history.shared_settings import HistoryAdmin
from tsdb.log.interface import CHUNKS as CHUNKS_TOPIC
from tsdb.log.interface import SERIES as SERIES_TOPIC
from tsdb.log.interface import Log, Position, TopicPartition
from tsdb.log.topics import TopicAdmin
from tsdb.model.clock import Clock

TABLES = (CHUNKS.name, SERIES.name, HOLES.name)
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RestoreTarget:
    """An empty history, and its log. group_id: group of its loaders."""

    store: ChunkStore
    admin: HistoryAdmin
    log: Log
    topics: TopicAdmin
    group_id: str


def check_restore(manifest: Manifest, target: RestoreTarget, now_ms: int, *, from_zero: bool) -> None:
    """Check all but the files. Raises as the checks do, and Unavailable (group_in_use) while a loader runs."""
    check_log(manifest, target.log)
    check_settings(manifest, target.admin)
    check_empty(manifest, target.store)
    check_no_member(target.log, target.group_id, "loader")
    if not from_zero:
        check_continuation(manifest, target.log, target.topics, now_ms)


def restore_rows(folder: BackupFolder, manifest: Manifest, store: ChunkStore, clock: Clock, advance: Advance) -> None:
    """Write chunks, series and holes; can be repeated. advance: bytes of files. Raises as writes of history do."""
    store.forget()  # A connection from before a loss would leave out the metric names that it wrote then.
    for table, begins in ((CHUNKS, _chunks), (SERIES, _series), (HOLES, _holes)):
        for file in manifest.of(table.name):
            for group in read_groups(folder, file):
                write_all(list(begins(store, group)), clock)
            advance(file.bytes)


def restore_progress(manifest: Manifest, target: RestoreTarget, clock: Clock) -> None:
    """Set the loaders' commits to those of the backup, then write where loaders begin, and the claims of the backup."""
    plan = manifest.plan
    if not plan.loaded:
        return
    positions = _positions(plan, target.log)
    # Jobs that wait for loaders look at the commits.
    set_positions(target.log, target.group_id, positions)
    for number, loaded in plan.loaded.items():
        chunks, series = (positions[topic, number].next_offset for topic in (CHUNKS_TOPIC, SERIES_TOPIC))
        rows = restored_rows(target.log, RestoredClaim(chunks, series, loaded))
        write_all([partial(target.store.write_loaded, row) for row in rows], clock)


def _positions(plan: BackupPlan, log: Log) -> dict[TopicPartition, Position]:
    found: dict[TopicPartition, Position] = {}
    for topic in (CHUNKS_TOPIC, SERIES_TOPIC):
        marks = log.watermarks(topic, sorted(plan.loaded))
        for number in plan.loaded:
            at: Position | None = getattr(plan.positions[number], topic)
            found[topic, number] = at or Position(marks[number].low)
    return found


def _chunks(store: ChunkStore, group: pa.Table) -> Iterator[Begin]:
    return (partial(store.write, row.key, row.value) for row in chunk_rows(group))


def _series(store: ChunkStore, group: pa.Table) -> Iterator[Begin]:
    return (partial(store.write_series, announcement, partition) for announcement, partition in series_rows(group))


def _holes(store: ChunkStore, group: pa.Table) -> Iterator[Begin]:
    for one in hole_rows(group):
        yield partial(store.accept_hole if one.accepted else store.write_hole, one.hole)

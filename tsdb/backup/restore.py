"""Restores history: writes the rows first, then the commits of the loaders, then the claims about the rows.

A restore never writes `loaded`, because the rows lack what came after the backup. An import that has ended since has
told its caller so. A loader starts at the offsets of the restored rows and writes `loaded` at the ends of both
topics (tsdb.history.claims). Until then every read that needs history is refused. After an interrupted restore a loader
starts from zero: the rows are never taken for a whole history.

A restore writes a group of rows at a time, and repeats it until history has all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from tsdb.backup.checks import check_continuation, check_empty, check_log, check_settings
from tsdb.backup.files import read_groups
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import BackupPlan, Manifest
from tsdb.backup.positions import check_no_member, set_positions
from tsdb.backup.tables import CHUNKS, HOLES, SERIES, chunk_rows, hole_rows, series_rows
from tsdb.history.claims import RestoredClaim, restored_rows
from tsdb.history.interface import ChunkStore, OnDone
from tsdb.history.shared_settings import HistoryAdmin
from tsdb.log.interface import CHUNKS as CHUNKS_TOPIC
from tsdb.log.interface import METRICS, Log, Position, TopicPartition
from tsdb.log.interface import SERIES as SERIES_TOPIC
from tsdb.log.topics import TopicAdmin
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

TABLES = (CHUNKS.name, SERIES.name, HOLES.name)
Advance = Callable[[int], None]

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)  # The pauses outlast the restart of a node.
ANSWER_WITHIN_S = 120.0

Begin = Callable[[OnDone], None]


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
    check_empty(manifest.plan.topic_ids[METRICS], target.store)
    check_no_member(target.log, target.group_id, "loader")
    if not from_zero:
        check_continuation(manifest.plan, target.log, target.topics, now_ms)


def restore_rows(folder: BackupFolder, manifest: Manifest, store: ChunkStore, clock: Clock, advance: Advance) -> None:
    """Write chunks, series and holes; can be repeated. advance: bytes of files. Raises as writes of history do."""
    store.forget()  # A connection from before the loss would leave out the metric names that it wrote then.
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
    # Jobs that wait for loaders read the commits.
    set_positions(target.log, target.group_id, _positions(plan, target.log))
    write_claims(plan, target.store, target.log, clock)


def write_claims(plan: BackupPlan, store: ChunkStore, log: Log, clock: Clock) -> None:
    """Write where loaders of the copied rows begin, and the claims of the history that they were copied from."""
    positions = _positions(plan, log)
    for number, loaded in plan.loaded.items():
        chunks, series = (positions[topic, number].next_offset for topic in (CHUNKS_TOPIC, SERIES_TOPIC))
        rows = restored_rows(log, RestoredClaim(chunks, series, loaded))
        write_all([partial(store.write_loaded, row) for row in rows], clock)


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


def write_all(begins: Sequence[Begin], clock: Clock) -> None:
    """Begin all writes and wait for their answers; repeat those that failed. Raises the last error."""
    for pause_s in (*PAUSES_S, None):
        begins, error = _try(begins)
        if error is None:
            return
        if pause_s is None or not isinstance(error, Unavailable | Overloaded):
            raise error
        clock.sleep(pause_s)


def _try(begins: Sequence[Begin]) -> tuple[Sequence[Begin], TsdbError | None]:
    """Writes that failed or did not begin, and the first error. After a failure no more writes begin."""
    answers = _Answers(len(begins))
    for number, begin in enumerate(begins):
        if answers.error is not None:
            break
        try:
            begin(answers.of(number))
        except TsdbError as error:
            answers.of(number)(error)
    return [begins[number] for number in answers.wait()], answers.error


class _Answers:
    """The answers to writes, by number. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()  # Guards the fields below.
        self._left = set(range(count))
        self._waiting: set[int] = set()
        self.error: TsdbError | None = None

    def of(self, number: int) -> OnDone:
        """The on_done of a write that begins now."""
        with self._changed:
            self._waiting.add(number)

        def on_done(error: TsdbError | None) -> None:
            with self._changed:
                self._waiting.discard(number)
                if error is None:
                    self._left.discard(number)
                self.error = self.error or error
                if not self._waiting:
                    self._changed.notify_all()

        return on_done

    def wait(self) -> list[int]:
        """Wait for the writes that began. Returns the numbers of all without success."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._waiting, ANSWER_WITHIN_S):
                self.error = self.error or Unavailable(
                    f"history did not answer {len(self._waiting)} writes within {ANSWER_WITHIN_S:g} s", reason="timeout"
                )
            return sorted(self._left)

"""Backups for tests: a log with a history and its loaders, backed up and restored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.data.chunk_topics import Expected, append_entries, staged
from support.servers.histories import HistoryFactory
from support.servers.loaders import OPTIONS
from support.servers.logs import LogFactory, wait_until
from tsdb.backup.backup import BackupSource, back_up
from tsdb.backup.checks import check_files, read_manifest
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import Manifest
from tsdb.backup.restore import TABLES, RestoreTarget, check_restore, restore_progress, restore_rows
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import GROUP, Loader
from tsdb.log.interface import METRICS, Log
from tsdb.log.meta import ensure_meta
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.meta import MetaSettings

PARTITIONS, WINDOWS, PACKS = 3, 4, 4
WITHIN_S = 30.0


@dataclass
class Ground:
    """A log with its topics and `meta`, and a history made for it."""

    logs: LogFactory
    histories: HistoryFactory
    log: Log
    clock: Clock

    def source(self) -> BackupSource:
        """The source of a backup."""
        return BackupSource(self.log, self.histories.open(), self.histories.admin(), GROUP)

    def target(self, histories: HistoryFactory | None = None, log: Log | None = None) -> RestoreTarget:
        """The target of a restore."""
        into = histories or self.histories
        return RestoreTarget(into.open(), into.admin(), log or self.log, self.logs.topics(), GROUP)

    def back_up(self, folder: Path | str, **options: object) -> Manifest:
        """Write a backup, or the rest of one."""
        return back_up(BackupFolder(str(folder)), self.source(), self.clock, **options)  # type: ignore[arg-type]

    def restore(self, folder: Path | str, target: RestoreTarget, *, from_zero: bool = False) -> None:
        """Check and restore, as the command does."""
        place = BackupFolder(str(folder))
        manifest = read_manifest(place)
        check_restore(manifest, target, self.clock.now_ms(), from_zero=from_zero)
        check_files(place, manifest.of(*TABLES), lambda size: None)
        restore_rows(place, manifest, target.store, self.clock, lambda size: None)
        if not from_zero:
            restore_progress(manifest, target, self.clock)

    def append_windows(self, first_window: int = 0) -> Expected:
        """Append the next windows. Returns what history must hold of them."""
        topic_id = self.log.topic_id(METRICS)
        entries, expected = staged(
            topic_id, PARTITIONS, WINDOWS, PACKS, seed=first_window + 1, first_window=first_window
        )
        append_entries(self.log, entries)
        return expected

    def load(self, store: ChunkStore, through: Expected) -> None:
        """Run a loader until its progress is that."""
        topic_id = self.log.topic_id(METRICS)
        loader = Loader(self.log, store, OPTIONS, SystemClock(), seed=1)
        loader.start()
        try:
            wait_until(lambda: loader.failure() is not None or store.loaded(topic_id) == through.loaded)
        finally:
            loader.close()
            assert loader.join(WITHIN_S), "the loader did not end"


@contextmanager
def ground(log_url: str, history_url: str) -> Iterator[Ground]:
    """New topics and an empty history."""
    with LogFactory(log_url, f"t{uuid.uuid4().hex[:12]}.") as logs, HistoryFactory(history_url) as histories:
        logs.create(PARTITIONS)
        log = logs.open()
        ensure_meta(log, MetaSettings(partitions=PARTITIONS))
        histories.create()
        yield Ground(logs, histories, log, SystemClock())

"""Snapshot folder: one file a partition, used by one process at a time."""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import ConfigMismatch, CorruptData
from tsdb.ops.file_lock import FileLock
from tsdb.store.snapshots.counts import passed_over
from tsdb.store.snapshots.file_writer import SUFFIX
from tsdb.store.snapshots.reasons import HALF_WRITTEN

LOCK_FILE = "lock"


class SnapshotFolder:
    """The constructor does nothing; `open` creates and locks the folder, `close` unlocks it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path / LOCK_FILE)

    def file(self, partition: int) -> Path:
        return self.path / f"partition-{partition}.snapshot"

    def open(self) -> None:
        """Raises ConfigMismatch (snapshot_dir, snapshot_dir_in_use). Removes the rests of writes that were cut off."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            holder = self._lock.take()
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigMismatch(f"--snapshot-dir {self.path} cannot be used: {why}", reason="snapshot_dir") from None
        if holder:
            raise ConfigMismatch(
                f"--snapshot-dir {self.path} is in use by process {holder}; end it first, or give another folder",
                reason="snapshot_dir_in_use",
            )
        for rest in sorted(self.path.glob(f"*{SUFFIX}")):
            passed_over(rest, CorruptData("its write was cut off; the file is removed", reason=HALF_WRITTEN))
            rest.unlink(missing_ok=True)

    def close(self) -> None:
        """A second call does nothing."""
        self._lock.release()

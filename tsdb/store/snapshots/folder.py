"""Snapshot folder: has one file for each partition; one process at a time uses it.

It belongs to production or to one experiment for good: the file `owner` names it. Otherwise the next start of one would
find its snapshots replaced by the other.
"""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import ConfigMismatch, CorruptData
from tsdb.ops.file_lock import FileLock
from tsdb.store.snapshots.counts import passed_over
from tsdb.store.snapshots.file_writer import SUFFIX
from tsdb.store.snapshots.reasons import HALF_WRITTEN

LOCK_FILE = "lock"
OWNER_FILE = "owner"
PRODUCTION = "production"


class SnapshotFolder:
    """The constructor does nothing; `open` creates and locks the folder, `close` unlocks it. experiment: empty:
    production."""

    def __init__(self, path: Path, experiment: str = "") -> None:
        self.path = path
        self._owner = f"experiment {experiment}" if experiment else PRODUCTION
        self._lock = FileLock(path / LOCK_FILE)

    def file(self, partition: int) -> Path:
        return self.path / f"partition-{partition}.snapshot"

    def open(self) -> None:
        """Removes the rests of writes that were cut off.

        Raises ConfigMismatch (snapshot_dir, snapshot_dir_in_use, snapshot_dir_owner).
        """
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
        self._own()
        for rest in sorted(self.path.glob(f"*{SUFFIX}")):
            passed_over(rest, CorruptData("its write was cut off; the file is removed", reason=HALF_WRITTEN))
            rest.unlink(missing_ok=True)

    def close(self) -> None:
        """A second call does nothing."""
        self._lock.release()

    def _own(self) -> None:
        file = self.path / OWNER_FILE
        try:
            # An empty file is left by a crash at the first start.
            written = file.read_text().strip() if file.exists() else ""
            owner = written or self._first_owner()
            if owner == self._owner and not written:
                file.write_text(f"{owner}\n")
        except OSError as error:
            why = error.strerror or str(error)
            raise ConfigMismatch(f"--snapshot-dir {self.path} cannot be used: {why}", reason="snapshot_dir") from None
        if owner != self._owner:
            self.close()
            raise ConfigMismatch(
                f"--snapshot-dir {self.path} belongs to {owner}, and this store is of {self._owner}: give it a separate"
                " folder",
                reason="snapshot_dir_owner",
            )

    def _first_owner(self) -> str:
        """Snapshots without the name of an owner are production's."""
        return PRODUCTION if any(self.path.glob("*.snapshot")) else self._owner

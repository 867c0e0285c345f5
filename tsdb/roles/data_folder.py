"""Data folder: locks the folder with the files of one `tsdb standalone` against a second process."""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import ConfigMismatch
from tsdb.ops.file_lock import FileLock
from tsdb.ops.lifecycle import Component

LOCK_FILE = "lock"


class DataFolder(Component):
    """A component: the constructor creates and locks the folder; `join` unlocks it after all other components."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigMismatch (data_dir, data_dir_in_use)."""
        self._lock = FileLock(path / LOCK_FILE)
        try:
            path.mkdir(parents=True, exist_ok=True)
            holder = self._lock.take()
        except OSError as error:
            why = "it is not a folder" if path.exists() and not path.is_dir() else error.strerror or str(error)
            raise ConfigMismatch(f"--data-dir {path} cannot be used: {why}", reason="data_dir") from None
        if holder:
            raise ConfigMismatch(
                f"--data-dir {path} is in use by process {holder}; end it first, or give another folder",
                reason="data_dir_in_use",
            )

    def join(self, timeout_s: float) -> bool:
        self._lock.release()
        return True

    def abort(self) -> None:
        self._lock.release()

"""Data folder: where one `tsdb standalone` keeps its files, locked against a second one."""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import ConfigMismatch
from tsdb.ops.file_lock import FileLock

LOCK_FILE = "lock"


class DataFolder:
    """A component: made and locked when opened, let go when everything else has ended."""

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

    def start(self) -> None:
        """It is locked already."""

    def close(self) -> None:
        """Others still write to it."""

    def join(self, timeout_s: float) -> bool:
        """Let it go."""
        self._lock.release()
        return True

    def abort(self) -> None:
        """Let it go."""
        self._lock.release()

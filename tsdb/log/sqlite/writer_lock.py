"""Writer lock: only one of the processes that open an embedded log may hold it and write."""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import ConfigMismatch, Unavailable
from tsdb.ops.file_lock import FileLock


class WriterLock:
    """A lock file beside the database, taken at the start or at the first write, and freed by `release`."""

    def __init__(self, database: Path) -> None:
        self._lock = FileLock(database.with_name(database.name + ".lock"))

    def take(self) -> None:
        """Take the lock; a second call does nothing. Raises Unavailable (log_locked) with the holder's process."""
        holder = self._lock.take()
        if holder:
            raise Unavailable(self._text(holder), reason="log_locked")

    def claim(self) -> None:
        """See `take`; for a process that cannot run without the lock. Raises ConfigMismatch (log_in_use)."""
        holder = self._lock.take()
        if holder:
            raise ConfigMismatch(f"{self._text(holder)}; end it first, or give another --log", reason="log_in_use")

    def release(self) -> None:
        """Free the lock. A second call does nothing."""
        self._lock.release()

    def _text(self, holder: str) -> str:
        return f"another process writes to this log: {self._lock.path} is held by process {holder}"

"""Writer lock: of all processes that open one embedded log, only one may write to it."""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import ConfigMismatch, Unavailable
from tsdb.ops.file_lock import FileLock


class WriterLock:
    """A lock file beside the database, taken at the start or the first write and let go by `release`."""

    def __init__(self, database: Path) -> None:
        self._lock = FileLock(database.with_name(database.name + ".lock"))

    def take(self) -> None:
        """Idempotent. Raises Unavailable (log_locked) naming who holds it."""
        holder = self._lock.take()
        if holder:
            raise Unavailable(self._text(holder), reason="log_locked")

    def claim(self) -> None:
        """As `take`, for a process that cannot do without: raises ConfigMismatch (log_in_use)."""
        holder = self._lock.take()
        if holder:
            raise ConfigMismatch(f"{self._text(holder)}; end it first, or give another --log", reason="log_in_use")

    def release(self) -> None:
        """Idempotent."""
        self._lock.release()

    def _text(self, holder: str) -> str:
        return f"another process writes to this log: {self._lock.path} is held by process {holder}"

"""Writer lock: of all processes that open one embedded log, only one may write to it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tsdb.model.errors import Unavailable


class WriterLock:
    """A lock file beside the database, taken at the first write and let go by `release` or the end of the process."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def take(self) -> None:
        """Idempotent. Raises Unavailable (log_locked) naming who holds it."""
        if self._file is not None:
            return
        file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise Unavailable(
                f"another process writes to this log: {self._path} is held by process {holder}", reason="log_locked"
            ) from None
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file

    def release(self) -> None:
        """Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

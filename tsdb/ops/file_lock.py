"""FileLock: a file that at most one process locks. It contains the process id of its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

PID_BYTES_MAX = 32


class FileLock:
    """`take` locks the file; `release`, or any end of the process, unlocks it. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> str:
        """Lock the file. A second call does nothing. Returns "" on success, otherwise the id of the process that has
        the lock."""
        if self._file is not None:
            return ""
        file = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(file, PID_BYTES_MAX).decode(errors="replace").strip()
            os.close(file)
            return holder or "unknown"
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file
        return ""

    def release(self) -> None:
        """Unlock the file. A second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

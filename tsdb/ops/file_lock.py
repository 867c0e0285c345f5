"""FileLock: a file that one process at a time holds, and that names this process to the others."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

PID_BYTES_MAX = 32


class FileLock:
    """Taken by `take`, let go by `release` or by the end of the process, however it ends. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> str:
        """Take it; idempotent. Returns the id of the process that holds it instead, "" when it is ours now."""
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
        """Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

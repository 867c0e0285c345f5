"""WatchedFile: content of a file, read at the start and again when the file changes.

When the file is removed or becomes invalid, the last valid content stays, and each such change is logged once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.logs import get_logger

Content = TypeVar("Content")
Stamp = tuple[int, ...]

log = get_logger(__name__)


class WatchedFile(Generic[Content]):
    """`read(file)` raises ConfigMismatch with the file's name; so does the constructor. Thread-safe.

    look_every_s: shortest time between two checks of the file by `now`. on_failure: called for each invalid change.
    """

    def __init__(
        self,
        file: Path,
        read: Callable[[Path], Content],
        clock: Clock,
        *,
        look_every_s: float = 0.0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._file = file
        self._read = read
        self._clock = clock
        self._look_every_s = look_every_s
        self._on_failure = on_failure
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._looked_at = clock.monotonic()
        # The stamp first: the next check then finds a change that comes after it.
        self._stamp = _stamp(file)
        self._content = read(file)

    def now(self) -> Content:
        """The content of the file, or the last valid content."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked_at >= self._look_every_s:
                self._looked_at = now
                self._look_locked()
            return self._content

    def _look_locked(self) -> None:
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._content = self._read(self._file)
        except ConfigMismatch as error:
            self._on_failure()
            log.warning("file not reloaded; its last valid content stays", file=str(self._file), error=error.message)
        else:
            log.info("file reloaded", file=str(self._file))


def _stamp(file: Path) -> Stamp | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    # A change of permissions changes st_ctime_ns alone: a file that becomes readable must be read.
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size

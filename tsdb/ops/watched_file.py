"""WatchedFile: reads the content of a file at the start, and again when the file changes.

When the file is removed or becomes invalid, the owner decides: either the last valid content stays, as for limits, or
other content replaces it, as for tokens. Each such change is logged once.
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

RETRY_S = 1.0  # An invalid file is read again without a change: descriptors or permissions may have been the cause.

log = get_logger(__name__)


class WatchedFile(Generic[Content]):
    """Both `read(file)` and the constructor raise ConfigMismatch with the file's name. Thread-safe.

    look_every_s: shortest time between two checks of the file by `now`. on_failure: called for each invalid change.
    fallback: the content of an invalid file; None: its last valid content.

    """

    def __init__(
        self,
        file: Path,
        read: Callable[[Path], Content],
        clock: Clock,
        *,
        look_every_s: float = 0.0,
        on_failure: Callable[[], None] = lambda: None,
        fallback: Callable[[Path], Content] | None = None,
    ) -> None:
        self._file = file
        self._read = read
        self._clock = clock
        self._look_every_s = look_every_s
        self._on_failure = on_failure
        self._fallback = fallback
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._looked_at = clock.monotonic()
        # Read the stamp first, so that the next check finds a change that comes after it.
        self._stamp = _stamp(file)
        self._content = read(file)
        self._problem = ""
        self._read_at = self._looked_at

    @property
    def problem(self) -> str:
        """Why the file was invalid at the last check; "" when it was valid."""
        return self._problem

    def now(self) -> Content:
        """The content of the file, or that of an invalid file."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._looked_at >= self._look_every_s:
                self._looked_at = now
                self._look_locked()
            return self._content

    def _look_locked(self) -> None:
        stamp, now = _stamp(self._file), self._clock.monotonic()
        is_new = stamp != self._stamp
        if not is_new and (not self._problem or now - self._read_at < RETRY_S):
            return
        self._stamp, self._read_at = stamp, now
        try:
            self._content = self._read(self._file)
        except ConfigMismatch as error:
            self._problem = error.message
            if self._fallback is not None:
                self._content = self._fallback(self._file)
            if is_new:
                self._report()
        else:
            self._problem = ""
            log.info("file reloaded", file=str(self._file))

    def _report(self) -> None:
        self._on_failure()
        if self._fallback is None:
            log.warning("file not reloaded; its last valid content stays", file=str(self._file), error=self._problem)
        else:
            log.error("file is not valid; only its valid lines count", file=str(self._file), error=self._problem)


def _stamp(file: Path) -> Stamp | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    # A change of permissions changes only st_ctime_ns, and a file that becomes readable must be read.
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size

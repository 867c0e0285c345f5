"""Files that cannot grow now, for readiness: a full disk shows there, with the path and what is free.

Known to the whole process, as metrics are: who opens files and who answers probes do not meet.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from tsdb.model.errors import TsdbError
from tsdb.ops.metrics import gauge

REASONS = ("disk_full", "disk_error")

_full_files = gauge("tsdb_disk_full_files", "Database files of this process that cannot grow now.")


class GrowingFile:
    """A file that is written to. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_full(self) -> bool:
        """Whether the last write did not fit."""
        return self in _full

    def refused(self, error: TsdbError) -> None:
        """A write failed; only what the disk is to blame for counts."""
        if error.reason in REASONS:
            with _lock:
                _full[self] = error
                _full_files.set(len(_full))

    def grew(self) -> None:
        """A write fitted, or no more are made."""
        if self in _full:
            with _lock:
                _full.pop(self, None)
                _full_files.set(len(_full))

    def text(self, error: TsdbError) -> str:
        """What happened, for a person."""
        try:
            free = f"{shutil.disk_usage(self._path.parent).free} bytes are free on its disk"
        except OSError as unknown:
            free = f"what is free on its disk is not known: {unknown}"
        return f"{self._path} cannot grow: {error.message}; {free}. Make room: it goes on by itself"


_lock = threading.Lock()  # Guards changes of _full; a leaf.
_full: dict[GrowingFile, TsdbError] = {}


def disk_trouble() -> tuple[str, str] | None:
    """Reason (disk_full, disk_error) and text of a file that cannot grow; None when all can."""
    with _lock:
        found = next(iter(_full.items()), None)
    if found is None:
        return None
    file, error = found
    return error.reason, file.text(error)

"""Files that cannot grow now. Readiness shows a full disk with the path and the free bytes.

The list is global to the process, as metrics are: the code that opens files has no link to the code that answers
probes.
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
    """A file that the process writes to. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_full(self) -> bool:
        """Whether the disk refused the last write."""
        return self in _full

    def refused(self, error: TsdbError) -> None:
        """Record a failed write. An error with a reason other than REASONS is ignored: the disk did not cause it."""
        if error.reason in REASONS:
            with _lock:
                _full[self] = error
                _full_files.set(len(_full))

    def grew(self) -> None:
        """Record that a write succeeded, or that there will be no more writes."""
        if self in _full:
            with _lock:
                _full.pop(self, None)
                _full_files.set(len(_full))

    def text(self, error: TsdbError) -> str:
        """Message for an operator: path, error, free bytes."""
        try:
            free = f"{shutil.disk_usage(self._path.parent).free} bytes are free on its disk"
        except OSError as unknown:
            free = f"the free bytes on its disk are unknown: {unknown}"
        return f"{self._path} cannot grow: {error.message}; {free}. Make room on the disk: writes then continue"


_lock = threading.Lock()  # Guards changes of _full; an innermost lock.
_full: dict[GrowingFile, TsdbError] = {}


def disk_problem() -> tuple[str, str] | None:
    """Reason (disk_full, disk_error) and message of one file that cannot grow; None when all files can grow."""
    with _lock:
        found = next(iter(_full.items()), None)
    if found is None:
        return None
    file, error = found
    return error.reason, file.text(error)

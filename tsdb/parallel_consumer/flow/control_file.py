"""ControlFile: a Control read from a file that may change. An invalid file changes nothing and is reported."""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.control import Control
from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.metrics import ConsumerMetrics

CHECK_EVERY_S = 1.0
FILE_BYTES_MAX = 1 << 20

log = logging.getLogger(__name__)


class ControlFile:
    """Reads a control file, TOML or JSON by its suffix: a table with the names of Control. The consumer's thread calls
    it.

    `error`: why the current file was refused; empty when it was accepted. A missing file counts as empty.

    """

    def __init__(self, path: str | os.PathLike[str], use: Callable[[Control], None], metrics: ConsumerMetrics) -> None:
        self._path = Path(path)
        self._use = use
        self._metrics = metrics
        self._seen: object = object()  # Differs from the identity of any file.
        self._check_at = 0.0
        self.error = ""

    def check(self, clock: Clock) -> None:
        """Load the file if it has changed. The file is checked at most once in CHECK_EVERY_S."""
        now = clock.monotonic()
        if now < self._check_at:
            return
        self._check_at = now + CHECK_EVERY_S
        seen = self._identity()
        if seen != self._seen:
            self._seen = seen
            self._take()

    def _identity(self) -> object:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _take(self) -> None:
        try:
            control = Control.of(self._read())
        except InvalidConfig as error:
            self.error = f"{self._path}: {error.message}"
            self._metrics.control_reloads.labels("refused").inc()
            log.warning("control file refused, the previous settings stay: %s", self.error)
            return
        self.error = ""
        self._use(control)
        self._metrics.control_reloads.labels("taken").inc()
        log.info("control file taken: %s", control)

    def _read(self) -> dict[str, object]:
        try:
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InvalidConfig(f"cannot be read: {error}") from error
        if len(data) > FILE_BYTES_MAX:
            raise InvalidConfig(f"more than {FILE_BYTES_MAX} bytes")
        try:
            text = data.decode()
            table = json.loads(text) if self._path.suffix == ".json" else tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(f"invalid: {error}") from error
        if not isinstance(table, dict):
            raise InvalidConfig("not a table")
        return table

"""Series limits: how many active series a source and the gateway may have, from settings and a file read while running.

The file is TOML (docs/runbooks, "A source is at its series limit"). It is read again when it changes, so a limit moves
without a restart; a file that cannot be read or is wrong leaves the limits as they are.
"""

from __future__ import annotations

import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from ingest.series.source_hash import source_hash
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.ops.metrics import counter

SERIES_MAX = 100_000_000
FILE_BYTES_MAX = 4 << 20
FILE_SOURCES_MAX = 10_000
LOOK_EVERY_S = 1.0

_DEFAULTS = ("source_series_max", "gateway_series_max")
_reload_failures = counter(
    "tsdb_ingest_series_limits_reload_failures_total", "Changes of series_limits_file that could not be taken over."
)

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """of_source: by source hash, for sources with a limit of their own."""

    source_series_max: int = 100_000
    gateway_series_max: int = 2_000_000
    of_source: Mapping[int, int] = field(default_factory=dict)

    def source_maxima(self, sources: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The limit of each source hash."""
        if not self.of_source:
            return np.full(len(sources), self.source_series_max, np.int64)
        own = (self.of_source.get(source, self.source_series_max) for source in sources.tolist())
        return np.fromiter(own, np.int64, len(sources))


class LiveSeriesLimits:
    """The limits that hold now. Thread-safe. Raises ConfigMismatch (series_limits) when the file is wrong."""

    def __init__(self, settings: SeriesLimits, file: Path | None, rule: PlacementRule, clock: Clock) -> None:
        self._settings = settings
        self._file = file
        self._rule = rule
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below; a leaf.
        self._limits = settings
        self._looked_at = clock.monotonic()
        self._stamp: tuple[int, int, int] | None = None
        if file is not None:
            self._stamp, self._limits = self._read(file)

    def now(self) -> SeriesLimits:
        """The limits; looks for a changed file at most once a second."""
        if self._file is None:
            return self._limits
        with self._lock:
            if self._clock.monotonic() - self._looked_at >= LOOK_EVERY_S:
                self._looked_at = self._clock.monotonic()
                self._look_locked(self._file)
            return self._limits

    def _look_locked(self, file: Path) -> None:
        stamp = _stamp_or_none(file)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # A wrong file is reported once, not every second.
        try:
            self._stamp, self._limits = self._read(file)
        except ConfigMismatch as error:
            _reload_failures.inc()
            logger.warning("series limits not reloaded; the former ones stay", error=error.message)
            return
        logger.info(
            "series limits reloaded",
            file=str(file),
            source_series_max=self._limits.source_series_max,
            gateway_series_max=self._limits.gateway_series_max,
            sources=len(self._limits.of_source),
        )

    def _read(self, file: Path) -> tuple[tuple[int, int, int], SeriesLimits]:
        try:
            # The stamp first: a change after it is seen at the next look.
            stamp = _stamp(file)
            if stamp[2] > FILE_BYTES_MAX:
                raise _wrong(file, f"it has {stamp[2]} bytes; limit is {FILE_BYTES_MAX}")
            content = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise _wrong(file, str(error)) from error
        return stamp, self._parsed(file, content)

    def _parsed(self, file: Path, content: dict[str, Any]) -> SeriesLimits:
        sources = content.pop("source", [])
        if unknown := content.keys() - set(_DEFAULTS):
            raise _wrong(file, f"unknown key {min(unknown)!r}; known are {', '.join(_DEFAULTS)} and [[source]]")
        if not isinstance(sources, list) or len(sources) > FILE_SOURCES_MAX:
            raise _wrong(file, f"source must be tables [[source]], at most {FILE_SOURCES_MAX}")
        own = dict(self._source(file, f"[[source]] {at}", entry) for at, entry in enumerate(sources, 1))
        defaults = {key: _number(file, key, value) for key, value in content.items()}
        return replace(self._settings, of_source=own, **defaults)

    def _source(self, file: Path, place: str, entry: object) -> tuple[int, int]:
        """(hash of the source, its limit)"""
        if not isinstance(entry, dict) or entry.keys() != {"labels", "series_max"}:
            raise _wrong(file, f'{place} must be labels = {{ job = "..." }} and series_max = NUMBER')
        labels, allowed = entry["labels"], (*self._rule.labels, "__name__")
        if not isinstance(labels, dict) or not labels or not all(isinstance(value, str) for value in labels.values()):
            raise _wrong(file, f"{place}: labels must be a table of texts")
        if unknown := labels.keys() - set(allowed):
            raise _wrong(file, f"{place}: label {min(unknown)!r} is no placement label ({', '.join(allowed)})")
        placement = self._rule.place(canonical_labels(labels)).placement
        return source_hash(placement), _number(file, f"{place}: series_max", entry["series_max"])


def _number(file: Path, name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= SERIES_MAX:
        raise _wrong(file, f"{name} is {value!r}; it must be a number from 0 to {SERIES_MAX}")
    return value


def _wrong(file: Path, why: str) -> ConfigMismatch:
    return ConfigMismatch(f"series_limits_file {file}: {why}", reason="series_limits")


def _stamp(file: Path) -> tuple[int, int, int]:
    stat = file.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _stamp_or_none(file: Path) -> tuple[int, int, int] | None:
    try:
        return _stamp(file)
    except OSError:
        return None

"""Live series limits: the most active series of a source and of the gateway, from settings and from a watched file.

The file is TOML (docs/runbooks, "A source is at its series limit"). It is read again when it changes, so a limit
changes without a restart. An unreadable or invalid file leaves the limits unchanged.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from ingest.limits import SeriesLimits
from ingest.series.source_hash import source_hash
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.ops.metrics import counter
from tsdb.ops.watched_file import WatchedFile

SERIES_MAX = 100_000_000
FILE_BYTES_MAX = 4 << 20
FILE_SOURCES_MAX = 10_000
LOOK_EVERY_S = 1.0

_DEFAULTS = ("source_series_max", "gateway_series_max")
_reload_failures = counter(
    "tsdb_ingest_series_limits_reload_failures_total", "Changes of series_limits_file that could not be applied."
)

logger = structlog.get_logger(__name__)


class LiveSeriesLimits:
    """The current limits. Thread-safe. Raises ConfigMismatch (series_limits) when the file is invalid."""

    def __init__(self, settings: SeriesLimits, file: Path | None, rule: PlacementRule, clock: Clock) -> None:
        self._settings = settings
        self._rule = rule
        self._file: WatchedFile[SeriesLimits] | None = None
        if file is not None:
            self._file = WatchedFile(
                file, self._read, clock, look_every_s=LOOK_EVERY_S, on_failure=_reload_failures.inc
            )

    def now(self) -> SeriesLimits:
        """The limits; checks for a changed file at most once a second."""
        return self._settings if self._file is None else self._file.now()

    def _read(self, file: Path) -> SeriesLimits:
        try:
            size = file.stat().st_size
            if size > FILE_BYTES_MAX:
                raise _wrong(file, f"it has {size} bytes; limit is {FILE_BYTES_MAX}")
            content = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise _wrong(file, str(error)) from error
        limits = self._parsed(file, content)
        logger.info(
            "series limits read",
            file=str(file),
            source_series_max=limits.source_series_max,
            gateway_series_max=limits.gateway_series_max,
            sources=len(limits.of_source),
        )
        return limits

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

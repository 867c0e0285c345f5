"""Live limits: of series, requests and samples, from settings and from a watched file.

The file is read again when it changes, so a limit changes without a restart. An unreadable or invalid file leaves the
limits unchanged.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from ingest.limits import IngestLimits, RateLimits, SeriesLimits
from ingest.quota.limits_file import CurrentLimits, read_limits
from tsdb.model.clock import Clock
from tsdb.model.placement import PlacementRule
from tsdb.ops.metrics import counter
from tsdb.ops.watched_file import WatchedFile

LOOK_EVERY_S = 1.0

_reload_failures = counter(
    "tsdb_ingest_limits_reload_failures_total", "Changes of limits_file that could not be applied."
)

logger = structlog.get_logger(__name__)


class LiveLimits:
    """The current limits. Thread-safe. Raises ConfigMismatch (limits_file) when the file is invalid."""

    def __init__(self, limits: IngestLimits, rule: PlacementRule, clock: Clock) -> None:
        self._settings = CurrentLimits(limits.series, limits.source_rates, limits.token_rates)
        self._rule = rule
        self._file: WatchedFile[CurrentLimits] | None = None
        if limits.limits_file is not None:
            self._file = WatchedFile(
                limits.limits_file, self._read, clock, look_every_s=LOOK_EVERY_S, on_failure=_reload_failures.inc
            )

    def series(self) -> SeriesLimits:
        """Limits of active series. Each of these functions checks for a changed file at most once a second."""
        return self._now().series

    def source_rates(self) -> RateLimits:
        """Requests and samples a second of sources."""
        return self._now().source_rates

    def token_rates(self) -> RateLimits:
        """Requests and samples a second of bearer tokens."""
        return self._now().token_rates

    def _now(self) -> CurrentLimits:
        return self._settings if self._file is None else self._file.now()

    def _read(self, file: Path) -> CurrentLimits:
        limits = read_limits(file, self._settings, self._rule)
        logger.info(
            "limits read",
            file=str(file),
            source_series_max=limits.series.source_series_max,
            gateway_series_max=limits.series.gateway_series_max,
            sources=len(limits.series.of_source.keys() | limits.source_rates.own.keys()),
            tokens=len(limits.token_rates.own),
        )
        return limits

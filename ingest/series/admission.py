"""Admission: checks new series of a request against the limits of their source and of the gateway.

Runs only for requests that need announcements, so a request of known series costs nothing. A refused series never
reaches the log; known series of the same source are still accepted.
"""

from __future__ import annotations

import json

import numpy as np
import structlog
from numpy.typing import NDArray

from ingest.batch import Batch
from ingest.limits import IngestLimits, SeriesLimits
from ingest.refusals import Refusals
from ingest.series.active import ActiveSeries, LimitCheck
from ingest.series.announcements import NEW, Due
from ingest.series.cache import SeriesCache
from ingest.series.generation import keys_of
from ingest.series.live_limits import LiveSeriesLimits
from ingest.series.resolved_rows import ResolvedRows
from tsdb.model.clock import Clock
from tsdb.model.labels import SEPARATOR, parse_labels
from tsdb.model.placement import PlacementRule

SOURCE_CHARS_MAX = 64
WARN_EVERY_S = 60.0

logger = structlog.get_logger(__name__)


class SeriesAdmission:
    """Thread-safe. Raises ConfigMismatch (series_limits) for an invalid limits file."""

    def __init__(
        self, cache: SeriesCache, rule: PlacementRule, limits: IngestLimits, window_ms: int, clock: Clock
    ) -> None:
        self._cache = cache
        self._rule = rule
        self._clock = clock
        self._limits = LiveSeriesLimits(limits.series, limits.series_limits_file, rule, clock)
        self._active = ActiveSeries(window_ms, clock)
        self._warned_at: float | None = None

    def admit(
        self,
        batch: Batch,
        rows: ResolvedRows,
        due: list[Due],
        good: NDArray[np.bool_],
        refusals: Refusals,
        *,
        partial: bool,
    ) -> list[Due]:
        """`due` without refused rows. Rows over a limit are added to `refusals` and removed from `good`."""
        for one in due:
            keys = keys_of(rows.source[one.rows], rows.series_id[one.rows])
            if one.kind != NEW:
                self._active.renew(keys)
                continue
            limits = self._limits.now()
            found = self._active.admit(keys, limits, whole=not partial)
            if found.refused.any():
                self._refuse(batch, rows, one, found, limits, good, refusals)
        return due if not refusals.rows else [left for one in due if len((left := _kept(one, good)).rows)]

    def _refuse(
        self,
        batch: Batch,
        rows: ResolvedRows,
        due: Due,
        found: LimitCheck,
        limits: SeriesLimits,
        good: NDArray[np.bool_],
        refusals: Refusals,
    ) -> None:
        for at in np.flatnonzero(found.refused).tolist():
            row = int(due.rows[at])
            if not good[row]:  # Already refused for its other index epoch.
                continue
            good[row] = False
            text = ""
            if refusals.wants_text():
                text = self._text(self._cache.canonical(batch.labels[row]), rows.source[row], found, at, limits)
            reason = "source_series_limit" if found.over_source[at] else "gateway_series_limit"
            refusals.add(row, batch.samples_of(row), reason, text)
            if text:
                self._warn(reason, text)

    def _text(self, labels: bytes, source: np.uint32, found: LimitCheck, at: int, limits: SeriesLimits) -> str:
        if not found.over_source[at]:
            return (
                f"the gateway has {limits.gateway_series_max} active series, its limit (gateway_series_max):"
                " raise it, or let series end; known series go on"
            )
        limit = limits.source_maxima(np.array([source], np.uint64))[0]
        return (
            f"source {_shown_source(labels, self._rule)} has {found.source_active[at]} active series; limit is {limit}"
            " (source_series_max): drop labels that vary, or raise it in series_limits_file; known series go on"
        )

    def _warn(self, reason: str, text: str) -> None:
        """Log once a minute: a source over its limit repeats its requests."""
        now = self._clock.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            logger.warning("new series refused", reason=reason, example=text)


def _kept(due: Due, good: NDArray[np.bool_]) -> Due:
    kept = good[due.rows]
    return Due(due.kind, due.found_ms, due.rows[kept], due.epochs[kept])


def _shown_source(labels: bytes, rule: PlacementRule) -> str:
    """The placement labels of the series, or its metric family; at most SOURCE_CHARS_MAX characters."""
    held = [(name, value) for name, value in parse_labels(labels) if name in rule.labels]
    if held:
        text = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in held)
    else:
        text = rule.place(labels).placement.replace(SEPARATOR, b",").decode(errors="replace")
    return text if len(text) <= SOURCE_CHARS_MAX else text[: SOURCE_CHARS_MAX - 3] + "..."

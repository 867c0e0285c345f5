"""Admission: checks new series of a request against the limits of their source and of the gateway.

Runs only for requests that need announcements, so a request of known series costs nothing. A refused series never
reaches the log; known series of the same source are still accepted.

Messages name a source by a text that is made here.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ingest.limits import SeriesLimits
from ingest.refusals import Refusals
from ingest.rows import Rows
from ingest.series.active import ActiveSeries, LimitCheck, keys_of
from ingest.series.announcements import NEW, DueAnnouncements
from ingest.series.resolver import SeriesResolver
from tsdb.model.clock import Clock
from tsdb.model.labels import SEPARATOR, parse_labels
from tsdb.model.placement import PlacementRule
from tsdb.ops.logs import get_logger

WARN_EVERY_S = 60.0
logger = get_logger(__name__)

SOURCE_CHARS_MAX = 64


class SeriesAdmission:
    """Thread-safe. limits: returns the current ones."""

    def __init__(
        self,
        resolver: SeriesResolver,
        rule: PlacementRule,
        limits: Callable[[], SeriesLimits],
        window_ms: int,
        clock: Clock,
    ) -> None:
        self._resolver = resolver
        self._rule = rule
        self._clock = clock
        self._limits = limits
        self._active = ActiveSeries(window_ms, clock)
        self._warned_at: float | None = None

    def admit(
        self,
        rows: Rows,
        due: list[DueAnnouncements],
        good: NDArray[np.bool_],
        refusals: Refusals,
        *,
        partial: bool,
    ) -> list[DueAnnouncements]:
        """`due` without refused rows. Rows over a limit are added to `refusals` and removed from `good`."""
        for one in due:
            keys = keys_of(one.labels.source[one.which], one.labels.series_id[one.which])
            if one.kind != NEW:
                self._active.renew(keys)
                continue
            limits = self._limits()
            found = self._active.admit(keys, limits, whole=not partial)
            if found.refused.any():
                self._refuse(rows, one, found, limits, good, refusals)
        return due if not refusals.rows else [left for one in due if len((left := one.part(good[one.rows])).rows)]

    def _refuse(
        self,
        rows: Rows,
        due: DueAnnouncements,
        found: LimitCheck,
        limits: SeriesLimits,
        good: NDArray[np.bool_],
        refusals: Refusals,
    ) -> None:
        for at in np.flatnonzero(found.refused).tolist():
            row = int(due.rows[at])
            if not good[row]:  # The row was refused for its other index epoch.
                continue
            good[row] = False
            text = ""
            if refusals.wants_text():
                source = due.labels.source[due.which[at]]
                text = self._text(self._resolver.canonical(rows, row), source, found, at, limits)
            reason = "source_series_limit" if found.over_source[at] else "gateway_series_limit"
            refusals.add(row, rows.samples_of(row), reason, text)
            if text:
                self._warn(reason, text)

    def _text(self, labels: bytes, source: np.uint32, found: LimitCheck, at: int, limits: SeriesLimits) -> str:
        if not found.over_source[at]:
            return (
                f"{found.new} new series of the request beside {found.active} active ones of the gateway; limit is "
                f"{limits.gateway_series_max} (gateway_series_max): raise it, or let series end; known series go on"
            )
        limit = limits.source_maxima(np.array([source], np.uint64))[0]
        setting = "series_max of its [[source]]" if int(source) in limits.of_source else "source_series_max"
        return (
            f"source {shown_source(labels, self._rule)}: {found.source_new[at]} new series beside "
            f"{found.source_active[at]} active ones; limit is {limit} ({setting}): drop labels that vary, or raise it "
            "in limits_file; known series go on"
        )

    def _warn(self, reason: str, text: str) -> None:
        """Log once a minute: a source over its limit repeats its requests."""
        now = self._clock.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            logger.warning("new series refused", reason=reason, example=text)


def shown_source(labels: bytes, rule: PlacementRule) -> str:
    """The placement labels of the series, or its metric family; at most SOURCE_CHARS_MAX characters."""
    held = [(name, value) for name, value in parse_labels(labels) if name in rule.labels]
    if held:
        text = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in held)
    else:
        text = rule.place(labels).placement.replace(SEPARATOR, b",").decode(errors="replace")
    return text if len(text) <= SOURCE_CHARS_MAX else text[: SOURCE_CHARS_MAX - 3] + "..."

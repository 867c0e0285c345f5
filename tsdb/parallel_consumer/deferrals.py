"""Deferrals: an alarm for deferred records that are overdue. Each is logged repeatedly, at growing intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.status import STALLS_MAX, Stall
from tsdb.parallel_consumer.work import Work

log = logging.getLogger(__name__)


class Deferrals:
    """alarm_s: how long a deferred record may take."""

    def __init__(self, alarm_s: float, metrics: ConsumerMetrics) -> None:
        self._alarm_s = alarm_s
        self._metrics = metrics
        self._told: dict[Work, float] = {}  # Age at which each is logged next.

    def overdue(self, works: Iterable[Work], now: float) -> Sequence[Stall]:
        """Overdue deferred tasks, oldest first, at most STALLS_MAX; all are counted."""
        ages: dict[Work, float] = {}
        for work in works:
            if work.deferred and work.running and work.began_at is not None and not work.owner.closed:
                age_s = now - work.began_at
                if age_s >= self._alarm_s:
                    ages[work] = age_s
        self._told = {work: self._told.get(work, self._alarm_s) for work in ages}
        self._metrics.deferred_overdue.set(len(ages))
        oldest = sorted(ages.items(), key=lambda item: -item[1])[:STALLS_MAX]
        for work, age_s in oldest:
            self._say(work, age_s)
        return [Stall.of(work, age_s) for work, age_s in oldest]

    def _say(self, work: Work, age_s: float) -> None:
        if age_s < self._told[work]:
            return
        self._told[work] = 2 * age_s
        log.error("deferred end overdue, nothing above it can be committed as done: %s", Stall.of(work, age_s))

"""Deferrals: an alarm for deferred records that are overdue. Each is logged repeatedly, at growing intervals."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from tsdb.parallel_consumer.metrics import ConsumerMetrics
from tsdb.parallel_consumer.scheduling.stall import STALLS_MAX, Stall
from tsdb.parallel_consumer.scheduling.task import Task

log = logging.getLogger(__name__)


class Deferrals:
    """alarm_s: how long a deferred record may take."""

    def __init__(self, alarm_s: float, metrics: ConsumerMetrics) -> None:
        self._alarm_s = alarm_s
        self._metrics = metrics
        self._log_at_age_s: dict[Task, float] = {}  # Age at which each deferral is logged next.

    def overdue(self, tasks: Iterable[Task], now: float) -> Sequence[Stall]:
        """Overdue deferred tasks, oldest first, at most STALLS_MAX; all are counted."""
        ages: dict[Task, float] = {}
        for task in tasks:
            if task.deferred and task.running and task.began_at is not None and not task.owner.closed:
                age_s = now - task.began_at
                if age_s >= self._alarm_s:
                    ages[task] = age_s
        self._log_at_age_s = {task: self._log_at_age_s.get(task, self._alarm_s) for task in ages}
        self._metrics.deferred_overdue.set(len(ages))
        oldest = sorted(ages.items(), key=lambda item: -item[1])[:STALLS_MAX]
        for task, age_s in oldest:
            self._log_line(task, age_s)
        return [Stall.of(task, age_s) for task, age_s in oldest]

    def _log_line(self, task: Task, age_s: float) -> None:
        if age_s < self._log_at_age_s[task]:
            return
        self._log_at_age_s[task] = 2 * age_s
        log.error("deferred end overdue, the position cannot pass it: %s", Stall.of(task, age_s))

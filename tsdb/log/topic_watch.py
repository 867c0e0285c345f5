"""Topic watch: reports the present state of the topics, as brokers see it, in metrics.

A role checks its topics at its start alone. Afterwards a broker may leave the replicas in sync, and an operator may
change a setting.
"""

from __future__ import annotations

from collections.abc import Callable

from tsdb.log.interface import CHUNKS_DLQ, METRICS, Log
from tsdb.log.topics import TopicAdmin, TopicSpec, TopicState, differences, retention_needed_ms, topic_specs
from tsdb.model.errors import TsdbError
from tsdb.model.time_set import TimeSet
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic

EVERY_S = 30.0
FAULTS = ("leaderless", "under_min_isr", "under_replicated")

log = get_logger(__name__)

replica_faults = gauge(
    "tsdb_log_topic_replica_faults",
    "Partitions of the topic without a leader, with fewer replicas in sync than min.insync.replicas (they take no "
    "writes), or with fewer than they have.",
    ("topic", "kind"),
)
retention = gauge(
    "tsdb_log_topic_retention_seconds", "Retention of the topic; +Inf without a limit of time.", label="topic"
)
retention_needed = gauge(
    "tsdb_log_topic_retention_needed_seconds",
    "Least retention; of the log: hold, window, grace, spread, and a day for an outage or a rebuild.",
    label="topic",
)
differing = gauge(
    "tsdb_log_topic_settings_differing", "Settings of the topic that `tsdb topics check` finds wrong.", label="topic"
)
dead_letters = gauge("tsdb_log_dead_letters", "Offsets of chunks.dlq that are not dropped: dead letters at most.")
looks_total = counter("tsdb_log_topic_looks_total", "Looks at the topics and their settings.")
look_failures_total = counter(
    "tsdb_log_topic_look_failures_total", "Looks that failed, by reason; values stay as they were.", "reason"
)


class TopicWatch(Periodic):
    """Owns one thread. open_admin: called for each look, and its result closed after it."""

    def __init__(self, log_: Log, open_admin: Callable[[], TopicAdmin], times: TimeSet) -> None:
        super().__init__("topic-watch", EVERY_S, self.look)
        self._log = log_
        self._open_admin = open_admin
        self._times = times

    def look(self) -> None:
        """Look once and set the metrics. A look that fails leaves the last values."""
        looks_total.inc()
        try:
            specs = topic_specs(self._log.partitions(METRICS), replication=1, retention_ms=self._times.least_hold_ms)
            with self._open_admin() as admin:
                for spec in specs:
                    self._show(spec, admin.describe(spec.name))
            marks = self._log.watermarks(CHUNKS_DLQ, range(self._log.partitions(CHUNKS_DLQ)))
            dead_letters.set(sum(mark.high - mark.low for mark in marks.values()))
        except TsdbError as error:
            look_failures_total.labels(error.reason).inc()
            log.debug("topics not seen", reason=error.reason, error=error.message)

    def _show(self, spec: TopicSpec, state: TopicState | None) -> None:
        differing.labels(spec.name).set(len(differences(spec, state)))
        if state is None:
            return
        for kind in FAULTS:
            replica_faults.labels(spec.name, kind).set(getattr(state.faults, kind))
        needed_ms = retention_needed_ms(spec, self._times)
        if needed_ms is not None:
            retention_needed.labels(spec.name).set(needed_ms / 1000)
            kept_ms = float(state.config.get("retention.ms", -1))
            retention.labels(spec.name).set(kept_ms / 1000 if kept_ms >= 0 else float("inf"))

"""Metrics of a registry and its scanner, which use the metrics registry of their program."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from tsdb.parallel_consumer.metrics import metric_on


class RegistryMetrics:
    """Counters and a gauge named prefix + name. Objects of one collector and prefix are the same metrics."""

    def __init__(self, collector: CollectorRegistry, prefix: str = "parallel_consumer_registry_") -> None:
        def counter(name: str, help: str) -> Counter:
            return metric_on(collector, Counter, prefix + name, help)

        self.prepared = counter(
            "prepared_total", "Copies acknowledged by the wait topic; each attempt of a record counts."
        )
        self.posted = counter("posted_total", "Null records acknowledged by the wait topic.")
        self.send_failures = counter("send_failures_total", "Copies or null records not acknowledged and sent again.")
        self.unregistered = counter(
            "unregistered_total", "Records whose copy is too large: acknowledged only once finished."
        )
        self.handed_back = counter(
            "handed_back_total",
            "Records acknowledged, not finished, and returned to the source at a shutdown or rebalance.",
        )
        self.left_behind = counter(
            "left_behind_total", "Records acknowledged and not finished when their partition was lost: they expire."
        )
        self.expired = counter("expired_total", "Records sent to the dead letters because they were never finished.")
        self.refused = counter("refused_total", "Records of the wait topic that are not wait records and are skipped.")
        self.waiting = metric_on(
            collector, Gauge, prefix + "waiting", "Copies without a null record, as seen by the scanner."
        )

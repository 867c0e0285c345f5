"""Metrics of the consumers of a program, on its registry. Consumers with the same registry and prefix share them."""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.metrics import MetricWrapperBase

from tsdb.parallel_consumer.policy import Action

BLOCKED = ("handler", "outlet")
COMMIT_FAILURES = ("unavailable", "stale_member", "undecided", "other")
SEND_FAILURES = ("unavailable", "no_topic", "record_too_large")
COMMIT_RESULTS = ("ok", "failed")
IGNORED = ("late", "finished_before", "superseded")
SENT = ("dead_letter", "requeue", "divert")
LIMITED = ("key_quota", "partition_rate", "rate", "diverted", "blocked_key")


_Metric = TypeVar("_Metric", bound=MetricWrapperBase)


def metric_on(
    registry: CollectorRegistry, kind: type[_Metric], name: str, help: str, labels: tuple[str, ...] = ()
) -> _Metric:
    """The metric of that name on the registry: the one that is there, or a new one.

    A second consumer in the process, or a reloaded module, counts on. Raises ValueError when another kind of metric has
    the name.
    """
    known = registry._names_to_collectors.get(name)
    if isinstance(known, kind) and known._labelnames == labels:
        return known
    return kind(name, help, labels, registry=registry)


class GaugePart:
    """The part of one consumer in a gauge: the gauge shows the sum over the consumers that share it."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._children: dict[str, GaugePart] = {}
        self._value = 0.0

    def labels(self, value: str) -> GaugePart:
        """The part of a gauge with a label."""
        child = self._children.get(value)
        if child is None:
            child = self._children[value] = GaugePart(self._gauge.labels(value))
        return child

    def set(self, value: float) -> None:
        """Replace this consumer's part."""
        self._gauge.inc(value - self._value)
        self._value = value

    def clear(self) -> None:
        """Remove this consumer's part."""
        if self._value:
            self.set(0.0)
        for child in self._children.values():
            child.clear()


class ConsumerMetrics:
    """Counters and gauges named prefix + name. Objects of one registry and prefix are the same metrics: counters of all
    their consumers together, gauges as the sum over running consumers.
    """

    def __init__(self, registry: CollectorRegistry, prefix: str = "parallel_consumer_") -> None:
        def counter(name: str, help: str, label: str = "", values: tuple[str, ...] = ()) -> Counter:
            metric = metric_on(registry, Counter, prefix + name, help, (label,) if label else ())
            for value in values:
                metric.labels(value)
            return metric

        def gauge(name: str, help: str, label: str = "", values: tuple[str, ...] = ()) -> GaugePart:
            metric = metric_on(registry, Gauge, prefix + name, help, (label,) if label else ())
            part = GaugePart(metric)
            for value in values:
                part.labels(value)
            self._gauges.append(part)
            return part

        self._registry = registry
        self._prefix = prefix
        self._gauges: list[GaugePart] = []
        actions = (*(action.value for action in Action), "nack")
        self.read = counter("records_read_total", "Records read from the source.")
        self.finished = counter("records_finished_total", "Records finished, successfully or not.")
        self.failures = counter("record_failures_total", "Exceptions of the handler, by action.", "kind", actions)
        self.sent = counter("records_sent_total", "Records sent and acknowledged, by kind.", "kind", SENT)
        self.send_failures = counter(
            "send_failures_total", "Dead letters or requeued records not acknowledged.", "reason", SEND_FAILURES
        )
        self.ignored = counter(
            "ignored_total",
            "late: completions of records of removed partitions; finished_before: records not handled because a"
            " commit marks them as finished; superseded: records not handled because a newer one of their key arrived.",
            "reason",
            IGNORED,
        )
        self.commits = counter("commits_total", "Commits, by result.", "result", COMMIT_RESULTS)
        self.commit_failures = counter(
            "commit_failures_total", "Commits that failed, by reason.", "reason", COMMIT_FAILURES
        )
        self.metadata_refused = counter("metadata_refused_total", "Commits whose metadata cannot be trusted.")
        self.pauses = counter("pauses_total", "Partitions paused because too much was read and not finished.")
        self.undrained = counter("undrained_total", "Records still running at the end of a drain.")
        self.limited = counter(
            "limited_total",
            "Records that waited for a rate or quota, were diverted because of one, or have a blocked key.",
            "reason",
            LIMITED,
        )
        self.breaker_opened = counter(
            "breaker_opened_total", "Times that the breaker stopped all new records after failures in a row."
        )
        self.control_reloads = counter(
            "control_reloads_total", "Changed control files, by result.", "result", ("taken", "refused")
        )
        self.running = gauge("running", "Records being handled or blocked.")
        self.blocked = gauge(
            "blocked",
            "Records held up by an unavailable dependency, those being tried again included. handler: the error policy"
            " blocks them. outlet: their dead letter or requeued record is not acknowledged.",
            "reason",
            BLOCKED,
        )
        self.unfinished = gauge("unfinished", "Records read and not finished.")
        self.unfinished_bytes = gauge("unfinished_bytes", "Bytes of the keys and values of unfinished records.")
        self.metadata_units = metric_on(
            registry, Gauge, prefix + "metadata_units", "UTF-16 units of the largest metadata in the last commit."
        )
        self.partitions = gauge("partitions", "Assigned partitions.")
        self.paused = gauge("paused_partitions", "Assigned partitions that are paused.")
        self.breaker_open = gauge(
            "breaker_open", "Consumers whose breaker allows no record, or a single one, to begin."
        )
        self.deferred_overdue = gauge("deferred_overdue", "Records with an overdue deferral.")
        self.stalled = gauge("stalled_records", "Records unfinished for longer than stall_after_s.")

    def of_consumer(self) -> ConsumerMetrics:
        """The same metrics for one more consumer."""
        return ConsumerMetrics(self._registry, self._prefix)

    def clear(self) -> None:
        """Remove this consumer's part of the gauges: it has ended."""
        for gauge in self._gauges:
            gauge.clear()

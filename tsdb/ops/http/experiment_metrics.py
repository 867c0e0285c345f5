"""Metrics of an experiment: exports those of the process under other names, with the experiment's name as a label.

An alert, a dashboard or a recording rule of production therefore never counts an experiment, not even one that users
have written: a sum over all series of a name stays a sum over production.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from tsdb.ops.metrics import PREFIX

EXPERIMENT_PREFIX = f"{PREFIX}experiment_"
LABEL = "experiment"


class ExperimentMetrics(Collector):
    """tsdb_store_lag_seconds becomes tsdb_experiment_store_lag_seconds{experiment="NAME"}, and process_open_fds becomes
    tsdb_experiment_process_open_fds. Collected by any thread."""

    def __init__(self, of: CollectorRegistry, experiment: str) -> None:
        self._of = of
        self._label = {LABEL: experiment}

    def collect(self) -> Iterator[Metric]:
        for metric in self._of.collect():
            found = Metric(_renamed(metric.name), metric.documentation, metric.type, metric.unit)
            found.samples = [
                sample._replace(name=_renamed(sample.name), labels={**sample.labels, **self._label})
                for sample in metric.samples
            ]
            yield found


def _renamed(name: str) -> str:
    return EXPERIMENT_PREFIX + name.removeprefix(PREFIX)


def experiment_registry(of: CollectorRegistry, experiment: str) -> CollectorRegistry:
    """A registry that serves the metrics of `of` as those of an experiment."""
    registry = CollectorRegistry()
    registry.register(ExperimentMetrics(of, experiment))
    return registry

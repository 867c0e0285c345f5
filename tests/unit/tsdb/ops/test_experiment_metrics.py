"""No metric of an experiment has the name of a metric of production; each has the experiment's name as a label."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tsdb.ops.http.experiment_metrics import EXPERIMENT_PREFIX, experiment_registry

ROOT = Path(__file__).resolve().parents[4]


def test_metrics_of_an_experiment_have_other_names_and_its_label() -> None:
    of = CollectorRegistry()
    Gauge("tsdb_store_lag_seconds", "Lag.", ["partition"], registry=of).labels("3").set(7)
    Counter("tsdb_reads_total", "Reads.", registry=of).inc(2)
    Histogram("tsdb_read_seconds", "Time.", buckets=[1.0], registry=of).observe(0.5)
    Gauge("process_open_fds", "Files.", registry=of).set(9)
    text = generate_latest(experiment_registry(of, "trial")).decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    name = ("experiment", "trial")
    assert samples[("tsdb_experiment_store_lag_seconds", (name, ("partition", "3")))] == 7
    assert samples[("tsdb_experiment_reads_total", (name,))] == 2
    assert samples[("tsdb_experiment_read_seconds_bucket", (name, ("le", "1.0")))] == 1
    assert samples[("tsdb_experiment_process_open_fds", (name,))] == 9
    assert all(one.startswith("tsdb_experiment_") and name in labels for one, labels in samples)
    assert "# HELP tsdb_experiment_store_lag_seconds Lag." in text


def test_no_metric_of_production_and_no_alert_has_a_name_of_an_experiment() -> None:
    """So none of its series is in a sum, a maximum or a count of production."""
    assert "| `tsdb_experiment_" not in (ROOT / "docs/metrics.md").read_text()
    assert EXPERIMENT_PREFIX not in (ROOT / "deploy/prometheus/alerts.yaml").read_text()

"""No metric of an experiment has the name of a metric of production; each has the experiment's name as a label."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tsdb.ops.http.experiment_metrics import experiment_registry


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

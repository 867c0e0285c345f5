from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tsdb.ops import metrics


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    """Metrics of a test do not belong in the registry that docs/metrics.md lists."""
    fresh = CollectorRegistry()
    monkeypatch.setattr(metrics, "registry", fresh)
    return fresh


def test_known_label_values_show_zero_from_the_start(registry: CollectorRegistry) -> None:
    metrics.counter("tsdb_a_total", "A.", "reason", ("x", "y"))
    metrics.gauge("tsdb_b", "B.", ("partition", "kind"), [("0", "raw")])
    text = generate_latest(registry).decode()
    assert 'tsdb_a_total{reason="x"} 0.0' in text
    assert 'tsdb_a_total{reason="y"} 0.0' in text
    assert 'tsdb_b{kind="raw",partition="0"} 0.0' in text
    assert "_created" not in text


@pytest.mark.parametrize("name", ["a_total", "tsdb_a"])
def test_a_counter_must_be_named_like_one(registry: CollectorRegistry, name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        metrics.counter(name, "A.")


def test_a_name_is_declared_once(registry: CollectorRegistry) -> None:
    metrics.gauge("tsdb_b", "B.")
    with pytest.raises(ValueError, match="tsdb_b"):
        metrics.gauge("tsdb_b", "B.")

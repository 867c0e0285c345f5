from __future__ import annotations

import subprocess
import sys

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


def test_an_adder_counts_as_the_metric_does(registry: CollectorRegistry) -> None:
    counter, gauge = metrics.counter("tsdb_c_total", "C.", "reason", ("x",)), metrics.gauge("tsdb_g", "G.")
    metrics.adder(counter.labels("x"))(2)
    counter.labels("x").inc()
    metrics.adder(gauge)(-1)
    text = generate_latest(registry).decode()
    assert 'tsdb_c_total{reason="x"} 3.0' in text
    assert "tsdb_g -1.0" in text


@pytest.mark.parametrize("name", ["a_total", "tsdb_a"])
def test_a_counter_must_be_named_like_one(registry: CollectorRegistry, name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        metrics.counter(name, "A.")


def test_a_name_is_declared_once(registry: CollectorRegistry) -> None:
    metrics.gauge("tsdb_b", "B.")
    with pytest.raises(ValueError, match="tsdb_b"):
        metrics.gauge("tsdb_b", "B.")


def test_two_declarations_of_one_name_are_refused(registry: CollectorRegistry) -> None:
    metrics.gauge("tsdb_b", "B.")
    for declare in (lambda: metrics.gauge("tsdb_b", "Another."), lambda: metrics.histogram("tsdb_b", "B.")):
        with pytest.raises(ValueError, match="tsdb_b"):
            declare()


RELOADED = """
import importlib, pkgutil, sys
import chunker, ingest, tsdb
names = [
    module.name
    for package in (tsdb, chunker, ingest)
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not module.name.startswith(("tsdb.v1", "tsdb.cli", "tsdb.ops.metrics"))
]
for name in names:
    importlib.import_module(name)
for name in names:
    importlib.reload(sys.modules[name])
print(len(names))
"""


@pytest.mark.slow
def test_every_module_can_be_loaded_again() -> None:
    """Runs in another process, because the classes of this process must stay the same."""
    done = subprocess.run([sys.executable, "-c", RELOADED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) > 500


TWICE = """
import asyncio
from prometheus_client import CollectorRegistry
from tsdb.client import Client, connect, connect_async
from tsdb.parallel_consumer import ConsumerMetrics
from tsdb.parallel_consumer.registry import RegistryMetrics

async def both() -> None:
    async with connect_async("127.0.0.1:1") as first, connect_async("127.0.0.1:1") as second:
        assert first is not second

for _ in range(2):  # Closed and opened again.
    with connect("127.0.0.1:1") as first, connect("127.0.0.1:1") as second:
        assert first is not second
    asyncio.run(both())
    for registry in (CollectorRegistry(), CollectorRegistry()):
        for _ in range(2):
            ConsumerMetrics(registry)
            RegistryMetrics(registry)
"""


@pytest.mark.slow
def test_public_objects_may_be_made_twice_in_a_process() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]

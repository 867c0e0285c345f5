"""Attacks the promise that exponential histograms of OpenTelemetry answer as they were recorded.

The SDK exports by HTTP and gRPC, and lowers the scale of its histograms as their range grows. The oracle counts the
recorded amounts in each bucket that is answered. With mark `soak` Prometheus 3.15 gets the same requests.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from support.promql.differential.prometheus import FEATURES, UPSTREAM, prometheus
from support.senders.go_senders import built
from support.servers.deployments import embedded
from support.servers.logs import wait_until
from support.servers.processes import Role

TIMEOUT_S = 60
NS_PER_MS = 1_000_000
EXPORTS = 6
KEEP = ("--native-histograms", "keep", "--enable-feature", ",".join(FEATURES))

# A warning of a library about itself; the exporters are what users install.
pytestmark = [pytest.mark.filterwarnings("default::DeprecationWarning"), pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Export:
    """One export of the SDK, its time and start, and all sizes recorded until then."""

    data: MetricsData
    at_ms: int
    start_ms: int
    sizes: tuple[float, ...]

    @property
    def body(self) -> bytes:
        return encode_metrics(self.data).SerializeToString()


def exports(job: str, seed: int) -> list[Export]:
    """Exports whose range of sizes grows. All sums are exact."""
    rng = np.random.default_rng(seed)
    reader = InMemoryMetricReader()
    view = View(instrument_name="size", aggregation=ExponentialBucketHistogramAggregation(max_size=20))
    provider = MeterProvider([reader], Resource({"service.name": job}), views=[view])
    size = provider.get_meter("app").create_histogram("size", unit="By")
    made: list[Export] = []
    sizes = [0.0]
    size.record(0.0)
    for number in range(EXPORTS):
        for amount in (rng.integers(1, 40, 20) / 4 * 2.0 ** rng.integers(0, 4 * number + 1, 20)).tolist():
            size.record(amount)
            sizes.append(amount)
        after_ms = made[-1].at_ms if made else 0
        while (one := _collected(reader, sizes)).at_ms == after_ms:
            pass  # Samples have a time each, in ms.
        made.append(one)
    provider.shutdown()
    return made


def _collected(reader: InMemoryMetricReader, sizes: Sequence[float]) -> Export:
    data: Any = reader.get_metrics_data()
    (point,) = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    return Export(data, point.time_unix_nano // NS_PER_MS, point.start_time_unix_nano // NS_PER_MS, tuple(sizes))


def ask(address: str, query: str, at_ms: int) -> list[Any]:
    """The result of an instant query, in the order of labels."""
    parameters = urllib.parse.urlencode({"query": query, "time": f"{at_ms / 1000:.3f}"})
    with contextlib.closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
        connection.request("GET", f"/api/v1/query?{parameters}")
        answer = json.loads(connection.getresponse().read())
    assert answer["status"] == "success", answer
    found: list[Any] = answer["data"]["result"]
    return sorted(found, key=lambda one: sorted(one["metric"].items()))


def check(address: str, job: str, sent: Sequence[Export]) -> None:
    """Every export answers with the sizes and the start that it had."""
    scales = set()
    for one in sent:
        query = f'size_bytes{{job="{job}"}}'
        wait_until(lambda: ask(address, query, one.at_ms) != [])  # noqa: B023  # Called within this round only.
        (row,), (start,) = ask(address, query, one.at_ms), ask(address, f"start_timestamp({query})", one.at_ms)
        assert float(start["value"][1]) == one.start_ms / 1000
        shown = row["histogram"][1]
        assert (float(shown["count"]), float(shown["sum"])) == (len(one.sizes), sum(one.sizes))
        counts = [float(count) for *_, count in shown["buckets"]]
        found = [_within(rule, low, high, one.sizes) for rule, low, high, _ in shown["buckets"]]
        assert counts == found
        assert sum(counts) == len(one.sizes)
        _, low, high, _ = shown["buckets"][-1]
        scales.add(float(high) / float(low))
    assert len(scales) > 1  # The scale was lowered on the way.


def _within(rule: int, low: str, high: str, sizes: Sequence[float]) -> int:
    """Sizes within a bucket. rule 0: (low, high]; 3: both ends included."""
    assert rule in (0, 3)
    least = float(low) if rule == 3 else np.nextafter(float(low), np.inf)
    return sum(least <= size <= float(high) for size in sizes)


def sender(role: Role, protocol: str) -> MetricExporter:
    if protocol == "grpc":
        return GrpcExporter(f"http://{role.grpc}", insecure=True, timeout=TIMEOUT_S)
    return HttpExporter(f"http://{role.http}/v1/metrics", timeout=TIMEOUT_S)


def test_exponential_histograms_answer_as_recorded_also_after_a_kill(tmp_path: Path) -> None:
    sent = {protocol: exports(protocol, seed) for seed, protocol in enumerate(("http", "grpc"))}
    with embedded(tmp_path, *KEEP) as running:
        for part in (slice(0, EXPORTS // 2), slice(EXPORTS // 2, EXPORTS)):
            for protocol, all_of_it in sent.items():
                exporter = sender(running.gateway, protocol)
                results = [exporter.export(one.data) for one in all_of_it[part]]
                assert results == [MetricExportResult.SUCCESS] * (EXPORTS // 2)
                exporter.shutdown()
            running.gateway.kill()
            running.gateway.start()
        for protocol, all_of_it in sent.items():
            check(running.gateway.http, protocol, all_of_it)


def queries(job: str) -> Iterator[str]:
    """Samples, starts, and functions over them, each at the time of an export."""
    series = f'size_bytes{{job="{job}"}}'
    yield f"{series}[1m]"
    yield f"start_timestamp({series})"
    yield f"increase({series}[1m])"
    yield f"histogram_count(rate({series}[1m]))"
    yield f"histogram_sum({series})"


def post(address: str, path: str, body: bytes) -> None:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
        connection.request("POST", path, body, {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()


@pytest.mark.soak
def test_prometheus_answers_the_same_of_the_same_requests(tmp_path: Path) -> None:
    features = (*FEATURES, "st-storage")
    sent = exports("app", 3)
    with (
        embedded(tmp_path, *KEEP) as running,
        prometheus(built(UPSTREAM), tmp_path, (), features, options=("--web.enable-otlp-receiver",)) as theirs,
    ):
        ours = running.gateway.http
        for one in sent:
            for address in (ours, theirs):
                post(address, "/api/v1/otlp/v1/metrics", one.body)
        check(ours, "app", sent)
        check(theirs, "app", sent)
        for one in sent:
            for query in queries("app"):
                assert ask(ours, query, one.at_ms) == ask(theirs, query, one.at_ms), query

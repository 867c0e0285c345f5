"""Samples of the OpenTelemetry SDK's exporters come back exactly, on both logs, also after the gateway was killed.

The exporters, HTTP and gRPC, are those that applications use. An exporter gives up after some repetitions; the next
export of the application then has the same sums with another time. The oracle is the twin of the mapping.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from support.oracles.otlp_twin import TwinRules, translate
from support.servers.deployments import Deployment, embedded, on_kafka
from support.servers.processes import wait_for_samples

TIMEOUT_S = 60
CLASSIC = ("--native-histograms", "classic")
NEVER_MS = float("inf")
Sample = tuple[str, int, int]

# A warning of a library about itself; the exporters are what users install.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


class Recorder(MetricExporter):
    """Passes metrics on to an exporter of the SDK, and keeps the requests that this makes of them."""

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self.sent: set[Sample] = set()
        self.accepted: set[Sample] = set()
        self.results: list[MetricExportResult] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> MetricExportResult:
        samples = translate(encode_metrics(metrics_data), TwinRules()).samples
        found = {(shown(labels), ts_ms, bits) for labels, ts_ms, bits in samples}
        self.sent |= found
        self.results.append(self._exporter.export(metrics_data, timeout_millis=TIMEOUT_S * 1000, **options))
        if self.results[-1] is MetricExportResult.SUCCESS:
            self.accepted |= found
        return self.results[-1]

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        self._exporter.shutdown(timeout_millis=timeout_millis)


class Application:
    """A program with instruments of all kinds. `work` uses them, `flush` exports."""

    def __init__(self, exporter: MetricExporter, name: str) -> None:
        self.recorder = Recorder(exporter)
        reader = PeriodicExportingMetricReader(self.recorder, export_interval_millis=NEVER_MS)
        exponential = View(instrument_type=Histogram, instrument_name="*.exp", aggregation=_exponential())
        resource = Resource(
            {"service.name": name, "service.namespace": "shop", "service.instance.id": "1", "zone": "a"}
        )
        self.provider = MeterProvider([reader], resource, views=[exponential])
        meter = self.provider.get_meter("app", "1.0")
        self._rng = np.random.default_rng(16)
        self._requests = meter.create_counter("http.server.requests", unit="{request}", description="Requests.")
        self._active = meter.create_up_down_counter("http.server.active", unit="1")
        self._duration = meter.create_histogram("http.server.duration", unit="ms")
        self._sizes = meter.create_histogram("http.response.size.exp", unit="By")
        meter.create_observable_gauge("cpu.utilization", [self._cpus], unit="1")

    def _cpus(self, _options: Any) -> list[Observation]:
        return [Observation(float(self._rng.random()), {"cpu": number, "hot": number > 1}) for number in range(4)]

    def work(self) -> None:
        for number in range(200):
            labels = {"http.method": ("GET", "POST")[number % 2], "code": 200 + number % 3, "ok": True, "q": 0.5}
            self._requests.add(1 + number % 2, labels)
            self._active.add((-1) ** number, {"http.method": "GET", "path": "/é"})
            self._duration.record(float(self._rng.exponential(50)), labels)
            self._sizes.record(float(self._rng.exponential(3000)), {"tags": ("a", "b")})

    def flush(self) -> None:
        """Export until one succeeds."""
        self.work()
        results, deadline = self.recorder.results, time.monotonic() + 2 * TIMEOUT_S
        while True:
            self.provider.force_flush(TIMEOUT_S * 1000)
            if results[-1] is MetricExportResult.SUCCESS:
                return
            assert time.monotonic() < deadline


def _exponential() -> ExponentialBucketHistogramAggregation:
    return ExponentialBucketHistogramAggregation(max_size=20)


def shown(labels: dict[str, str]) -> str:
    return repr(sorted(labels.items()))


@contextlib.contextmanager
def application(gateway: Deployment, protocol: str) -> Iterator[Application]:
    exporter: MetricExporter
    if protocol == "grpc":
        exporter = GrpcExporter(endpoint=f"http://{gateway.gateway.grpc}", insecure=True, timeout=TIMEOUT_S)
    else:
        path = "api/v1/otlp/v1/metrics" if protocol == "http" else "v1/metrics"
        compression = Compression.Gzip if protocol == "http" else Compression.NoCompression
        exporter = HttpExporter(f"http://{gateway.gateway.http}/{path}", timeout=TIMEOUT_S, compression=compression)
    made = Application(exporter, f"api-{protocol}")
    try:
        yield made
    finally:
        made.provider.shutdown()


@pytest.fixture(params=["sqlite", "kafka"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Gateways that map exponential histograms as the twin does."""
    if request.param == "sqlite":
        with embedded(tmp_path, *CLASSIC) as running:
            yield running
    else:
        with on_kafka(tmp_path, request.getfixturevalue("kafka").bootstrap, gateway=CLASSIC) as running:
            yield running


def test_metrics_of_the_sdk_come_back_exactly_also_after_the_gateway_was_killed(deployment: Deployment) -> None:
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(application(deployment, kind)) for kind in ("http", "plain", "grpc")]
        for one in running:
            one.flush()
            one.flush()
            assert one.recorder.results == [MetricExportResult.SUCCESS] * 2
        check(deployment, running)
        deployment.gateway.kill()
        threads = [threading.Thread(target=one.flush) for one in running]
        for thread in threads:
            thread.start()
        deployment.gateway.start()
        for thread in threads:
            thread.join(3 * TIMEOUT_S)
            assert not thread.is_alive()
        check(deployment, running)


def check(deployment: Deployment, running: list[Application]) -> None:
    """The store has all samples of successful exports, and no other ones than those that were sent."""
    accepted = {sample for one in running for sample in one.recorder.accepted}
    sent = {sample for one in running for sample in one.recorder.sent}
    assert len(accepted) > 100 * len(running)
    wait_for_samples(deployment.store.grpc, len(accepted))
    times = [ts_ms for _, ts_ms, _ in sent]
    with deployment.reader() as client:
        found = client.select('{__name__=~".+"}', min(times), max(times) + 1)
    bits = found.values.view(np.int64).tolist()
    got = set()
    for index, series in enumerate(found):
        span = range(int(found.starts[index]), int(found.starts[index + 1]))
        got |= {(shown(series[0]), int(found.ts_ms[at]), bits[at]) for at in span}
    assert accepted <= got <= sent

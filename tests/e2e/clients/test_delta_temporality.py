"""Attacks the promise that deltas add up to what an application recorded: killed gateways, repeated requests.

The OpenTelemetry SDK exports deltas by HTTP and gRPC. An interval leaves its memory with the export, so the test
repeats each export until it succeeds, and later once more, as after an answer that was lost. The oracle is the
arithmetic of the recorded amounts, which are exact in binary: it shares nothing with the mapping. With mark `soak`
Prometheus 3.15 gets the same requests and answers the same queries.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

from support.promql.differential.prometheus import FEATURES, UPSTREAM, prometheus
from support.senders.go_senders import built
from support.servers.deployments import Deployment, embedded, on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role

TIMEOUT_S = 60
NS_PER_MS = 1_000_000
BOUNDS = (1.0, 2.0, 8.0)
KEEP = ("--native-histograms", "keep")
DELTAS: Any = dict.fromkeys((Counter, UpDownCounter, Histogram), AggregationTemporality.DELTA)
LABELS = ("GET", "POST")

# A warning of a library about itself; the exporters are what users install.
pytestmark = [pytest.mark.filterwarnings("default::DeprecationWarning"), pytest.mark.timeout(600)]


@dataclass
class Recorded:
    """Amounts that an application recorded in one interval. end_ms: the time of its points."""

    end_ms: int = 0
    added: dict[str, float] = field(default_factory=lambda: dict.fromkeys(LABELS, 0.0))
    changed: float = 0.0
    durations: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)


class Repeating(MetricExporter):
    """Exports until it succeeds, and again by `repeat`.

    sent: all exports. ends_ms: the times of their points.
    """

    def __init__(self, exporter: MetricExporter) -> None:
        super().__init__(exporter._preferred_temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self.sent: list[MetricsData] = []
        self.ends_ms: list[int] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any) -> MetricExportResult:
        (resource,) = encode_metrics(metrics_data).resource_metrics
        metrics = [one for scope in resource.scope_metrics for one in scope.metrics]
        points = [point for one in metrics for point in getattr(one, one.WhichOneof("data") or "").data_points]
        (end_ns,) = {point.time_unix_nano for point in points}
        self.sent.append(metrics_data)
        self.ends_ms.append(end_ns // NS_PER_MS)
        deadline = time.monotonic() + 2 * TIMEOUT_S
        result = MetricExportResult.FAILURE
        while result is not MetricExportResult.SUCCESS:
            assert time.monotonic() < deadline
            result = self._exporter.export(metrics_data, timeout_millis=TIMEOUT_S * 1000)
        return result

    def repeat(self) -> None:
        """Export everything once more, the newest first."""
        for metrics_data in reversed(self.sent):
            assert self._exporter.export(metrics_data) is MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **options: Any) -> None:
        self._exporter.shutdown(timeout_millis=timeout_millis)


class DeltaApplication:
    """A program that records known amounts. `flush` records an interval and exports it."""

    def __init__(self, exporter: MetricExporter, name: str, seed: int) -> None:
        self.name = name
        self.exporter = Repeating(exporter)
        self.intervals: list[Recorded] = []
        self._rng = np.random.default_rng(seed)
        views = [
            View(instrument_name="size", aggregation=ExponentialBucketHistogramAggregation(max_size=20)),
            View(instrument_name="duration", aggregation=ExplicitBucketHistogramAggregation(BOUNDS)),
        ]
        reader = PeriodicExportingMetricReader(self.exporter, export_interval_millis=float("inf"))
        self.provider = MeterProvider([reader], Resource({"service.name": name}), views=views)
        meter = self.provider.get_meter("app")
        self._requests = meter.create_counter("requests")
        self._active = meter.create_up_down_counter("active")
        self._duration = meter.create_histogram("duration", unit="s")
        self._size = meter.create_histogram("size", unit="By")

    def flush(self) -> None:
        now = Recorded()
        for label in LABELS:
            for amount in self._amounts(0, 40):
                self._requests.add(amount, {"method": label})
                now.added[label] += amount
        for amount in self._amounts(-40, 40):
            self._active.add(amount)
            now.changed += amount
        now.durations = self._amounts(0, 40)
        # Scales of intervals differ with the spread of their values.
        now.sizes = [amount * 2.0 ** int(self._rng.integers(0, 20)) for amount in self._amounts(1, 9)]
        for amount in now.durations:
            self._duration.record(amount)
        for amount in now.sizes:
            self._size.record(amount)
        self.provider.force_flush(2 * TIMEOUT_S * 1000)
        now.end_ms = self.exporter.ends_ms[-1]
        self.intervals.append(now)

    def _amounts(self, low: int, high: int) -> list[float]:
        """Multiples of 1/4: all sums of them are exact."""
        return (self._rng.integers(4 * low, 4 * high, 20) / 4).tolist()  # type: ignore[no-any-return]


@dataclass
class Deltas:
    """A deployment, and the address that answers PromQL over it."""

    deployment: Deployment
    queries: str


@pytest.fixture(params=["sqlite", "kafka"])
def deltas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deltas]:
    if request.param == "sqlite":
        with embedded(tmp_path, *KEEP) as running:
            yield Deltas(running, running.gateway.http)
    else:
        bootstrap = request.getfixturevalue("kafka").bootstrap
        with contextlib.ExitStack() as stack:
            running = stack.enter_context(on_kafka(tmp_path, bootstrap, gateway=KEEP))
            querier = Role(tmp_path, "querier", *running.log, "--stores", running.store.grpc)
            yield Deltas(running, stack.enter_context(querier).http)


@contextlib.contextmanager
def application(gateway: Role, protocol: str, seed: int) -> Iterator[DeltaApplication]:
    exporter: MetricExporter
    options: Any = {"timeout": TIMEOUT_S, "preferred_temporality": DELTAS}
    if protocol == "grpc":
        exporter = GrpcExporter(f"http://{gateway.grpc}", insecure=True, **options)
    else:
        exporter = HttpExporter(f"http://{gateway.http}/v1/metrics", **options)
    made = DeltaApplication(exporter, protocol, seed)
    try:
        yield made
    finally:
        made.provider.shutdown()


def exported(gateway: Role, running: list[DeltaApplication]) -> None:
    """Export four intervals of each application, one of them while the gateway is killed, and the first three twice."""
    for one in running:
        one.flush()
        one.flush()
    gateway.kill()
    threads = [threading.Thread(target=one.flush) for one in running]
    for thread in threads:
        thread.start()
    gateway.start()
    for thread in threads:
        thread.join(3 * TIMEOUT_S)
        assert not thread.is_alive()
    for one in running:
        one.exporter.repeat()
        one.flush()


def ask(address: str, query: str, at_ms: int) -> list[Any]:
    parameters = urllib.parse.urlencode({"query": query, "time": f"{at_ms / 1000:.3f}"})
    host, _, port = address.rpartition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)) as connection:
        connection.request("GET", f"/api/v1/query?{parameters}")
        answer = json.loads(connection.getresponse().read())
    assert answer["status"] == "success", answer
    found: list[Any] = answer["data"]["result"]
    return sorted(found, key=lambda one: sorted(one["metric"].items()))


def total(name: str, job: str, first: Recorded, last: Recorded) -> tuple[str, int]:
    """The query and time of a sum over the intervals after `first` up to `last`."""
    return f'sum_over_time({name}{{job="{job}"}}[{last.end_ms - first.end_ms}ms])', last.end_ms


def spans(one: DeltaApplication) -> Iterator[tuple[Recorded, Recorded, list[Recorded]]]:
    """(interval before, last interval, all intervals between), for every run of intervals."""
    before = Recorded(one.intervals[0].end_ms - 60_000)
    edges = [before, *one.intervals]
    for first, last in itertools.combinations(range(len(edges)), 2):
        yield edges[first], edges[last], edges[first + 1 : last + 1]


def check(address: str, one: DeltaApplication) -> None:
    for first, last, between in spans(one):
        values = {
            (row["metric"].get("method"), row["metric"].get("le"), name): float(row["value"][1])
            for name in ("requests_total", "active", "duration_seconds_bucket", "duration_seconds_sum")
            for row in ask(address, *total(name, one.name, first, last))
        }
        durations = [duration for interval in between for duration in interval.durations]
        expected: dict[Any, float] = {
            (None, None, "active"): sum(interval.changed for interval in between),
            (None, None, "duration_seconds_sum"): sum(durations),
            (None, "+Inf", "duration_seconds_bucket"): len(durations),
        }
        for label in LABELS:
            expected[label, None, "requests_total"] = sum(interval.added[label] for interval in between)
        for bound in BOUNDS:
            below = sum(duration <= bound for duration in durations)
            expected[None, f"{bound:g}", "duration_seconds_bucket"] = below
        assert values == expected
        (row,) = ask(address, *total("size_bytes", one.name, first, last))
        check_histogram(row["histogram"][1], [size for interval in between for size in interval.sizes])


def check_histogram(shown: dict[str, Any], sizes: list[float]) -> None:
    """Each bucket has the number of sizes within it. Boundaries are of `(low, high]`."""
    assert (float(shown["count"]), float(shown["sum"])) == (len(sizes), sum(sizes))
    counted = 0
    for rule, low, high, count in shown["buckets"]:
        assert rule == 0
        assert float(count) == sum(float(low) < size <= float(high) for size in sizes)
        counted += int(count)
    assert counted == len(sizes)


def wait_for_last(address: str, one: DeltaApplication) -> None:
    """Wait until all series answer with their last interval: 2 + 1 sums, 6 of the histogram, 1 exponential one."""
    query = f'count(last_over_time({{job="{one.name}"}}[1ms]))'
    at_ms = one.intervals[-1].end_ms
    wait_until(lambda: [row["value"][1] for row in ask(address, query, at_ms)] == ["10"])


def test_deltas_add_up_to_what_was_recorded_whatever_is_killed_or_repeated(deltas: Deltas) -> None:
    gateway = deltas.deployment.gateway
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(application(gateway, protocol, seed)) for seed, protocol in enumerate(("http", "grpc"))
        ]
        exported(gateway, running)
        for one in running:
            wait_for_last(deltas.queries, one)
            check(deltas.queries, one)


@pytest.mark.soak
def test_prometheus_answers_the_same_of_the_same_requests(tmp_path: Path) -> None:
    features = (*FEATURES, "otlp-native-delta-ingestion", "st-storage", "xor2-encoding", "histograms-st-encoding")
    with (
        embedded(tmp_path, *KEEP, "--enable-feature", ",".join(FEATURES)) as running,
        prometheus(built(UPSTREAM), tmp_path, (), features, options=("--web.enable-otlp-receiver",)) as theirs,
        application(running.gateway, "http", seed=2) as one,
    ):
        exported(running.gateway, [one])
        ours = running.gateway.http
        wait_for_last(ours, one)
        for metrics_data in one.exporter.sent:
            body = encode_metrics(metrics_data).SerializeToString()
            assert post(theirs, body) == (200, "")
            # Prometheus refuses a repeated histogram whose buckets it laid out anew. The first one stays.
            assert post(theirs, body) in ((200, ""), (400, "duplicate sample for timestamp\n"))
        check(theirs, one)
        for first, last, _ in spans(one):
            for query in compared_queries(one.name, first, last):
                assert ask(ours, query, last.end_ms) == ask(theirs, query, last.end_ms), query
            for name in ("size_bytes", "duration_seconds_bucket"):
                query = f"histogram_quantile(0.9, {total(name, one.name, first, last)[0]})"
                # Interpolation within a bucket takes a logarithm, whose last bit differs.
                mine, wanted = (float(ask(of, query, last.end_ms)[0]["value"][1]) for of in (ours, theirs))
                assert mine == pytest.approx(wanted, rel=1e-14), query


def compared_queries(job: str, first: Recorded, last: Recorded) -> Iterator[str]:
    """Sums of each kind of series; increases, which start timestamps make right; the samples and their starts."""
    for name in ("requests_total", "active", "duration_seconds_bucket", "duration_seconds_count", "size_bytes"):
        yield (query := total(name, job, first, last)[0])
        yield query.replace("sum_over_time", "increase")
        yield f'{name}{{job="{job}"}}'
        yield f'start_timestamp({name}{{job="{job}"}})'


def post(address: str, body: bytes) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)) as connection:
        connection.request("POST", "/api/v1/otlp/v1/metrics", body, {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

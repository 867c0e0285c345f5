"""Attacks the promise that this store answers what Prometheus holds: native histograms, floats and start timestamps.

Prometheus 3.15 scrapes itself, an exporter built with client_golang, in the protobuf format. A second job converts the
classic histograms to custom buckets. It sends remote write 1.0 to one standalone process and 2.0 to another. The same
queries get the same JSON from all three: from memory, after SIGKILL, from history, and over both.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.promql.differential.prometheus import FEATURES, UPSTREAM, prometheus
from support.senders.go_senders import built
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import connect

SCRAPED_S = 12.0
FEATURES_OF_STARTS = (*FEATURES, "st-storage")
KEEP = ("--time-set", "brief", "--native-histograms", "keep", "--enable-feature", ",".join(FEATURES))
EVERYTHING = '{__name__=~".+"}'
EVICTED_WITHIN_S = 300.0  # Memory holds 45 s with the brief time set; a busy machine drops them later.
CONFIG = """\
global: {{scrape_interval: 1s, scrape_timeout: 1s, scrape_protocols: [PrometheusProto]}}
scrape_configs:
- job_name: native
  scrape_native_histograms: true
  static_configs: [{{targets: ['{page}']}}]
- job_name: custom
  convert_classic_histograms_to_nhcb: true
  static_configs: [{{targets: ['{page}']}}]
remote_write:
- url: http://{one}/api/v1/write
  send_native_histograms: true
  queue_config: {{batch_send_deadline: 200ms, max_backoff: 500ms}}
- url: http://{two}/api/v1/write
  protobuf_message: io.prometheus.write.v2.Request
  send_native_histograms: true
  queue_config: {{batch_send_deadline: 200ms, max_backoff: 500ms}}
"""
EVERY_NATIVE = '{__name__=~".+",job="native"}'
OF_NATIVE = (
    EVERY_NATIVE + "[{range}]",
    '{__name__=~"prometheus_.*_seconds",job="native"}',
)
FIRST_INCREMENT = 'increase(prometheus_http_requests_total{handler="/api/v1/labels"}[{range}])'
# Remote write 1.0 has no start timestamps, and Prometheus drops custom buckets from it.
OF_ALL = (
    *OF_NATIVE,
    'sum(rate(prometheus_http_request_duration_seconds{job="native"}[{range}]))',
    'histogram_count(increase(prometheus_engine_query_duration_histogram_seconds{job="native"}[{range}]))',
    EVERYTHING + "[{range}]",
    "sum by (job, handler) (prometheus_http_request_duration_seconds)",
    "start_timestamp(prometheus_http_requests_total)",
    "start_timestamp(prometheus_http_request_duration_seconds)",
    "start_timestamp(process_cpu_seconds_total)",
    "increase(prometheus_http_requests_total[{range}])",
    "increase(prometheus_http_request_duration_seconds[{range}])",
    "rate(process_cpu_seconds_total[{range}])",
    FIRST_INCREMENT,
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Span:
    """A time and a range that ends there."""

    at_ms: int
    range_ms: int

    def queries(self, templates: Sequence[str]) -> list[str]:
        return [one.replace("{range}", f"{self.range_ms}ms") for one in templates]


def ask(address: str, query: str, at_ms: int) -> list[Any]:
    """The result of an instant query, in the order of labels."""
    parameters = urllib.parse.urlencode({"query": query, "time": f"{at_ms / 1000:.3f}"})
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", f"/api/v1/query?{parameters}")
        answer = json.loads(connection.getresponse().read())
    assert answer["status"] == "success", answer
    found: list[Any] = answer["data"]["result"]
    return sorted(found, key=lambda one: sorted(one["metric"].items()))


@dataclass(frozen=True)
class Senders:
    """Prometheus's address, and the receivers of remote write 1.0 and 2.0."""

    prometheus: str
    one: Role
    two: Role

    def differences(self, span: Span) -> list[str]:
        """Each query whose answers differ, with the first series that does."""
        found = []
        for role, templates in ((self.one, OF_NATIVE), (self.two, OF_ALL)):
            for query in span.queries(templates):
                ours, theirs = ask(role.http, query, span.at_ms), ask(self.prometheus, query, span.at_ms)
                assert theirs, query
                if ours != theirs:
                    pairs = zip(ours, theirs, strict=False)
                    first = next((pair for pair in pairs if pair[0] != pair[1]), (len(ours), len(theirs)))
                    found.append(f"{role.http} {query}: {first}")
        return found

    def wait_equal(self, span: Span) -> None:
        """Wait until both processes have received the span and answer as Prometheus."""
        found: list[str] = []

        def is_equal() -> bool:
            found[:] = self.differences(span)
            return not found

        wait_until(is_equal, 60.0, describe=lambda: "\n".join(one[:3000] for one in found))


@pytest.fixture
def senders(tmp_path: Path) -> Iterator[Senders]:
    folders = [tmp_path / name for name in ("one", "two")]
    with contextlib.ExitStack() as stack:
        roles = [stack.enter_context(Role(tmp_path, "standalone", "--data-dir", str(one), *KEEP)) for one in folders]
        one, two = roles

        def config(address: str) -> str:
            return CONFIG.format(page=address, one=one.http, two=two.http)

        yield Senders(
            stack.enter_context(prometheus(built(UPSTREAM), tmp_path, (), FEATURES_OF_STARTS, config_of=config)),
            one,
            two,
        )


def scraped(senders: Senders) -> Span:
    """A span of scrapes of changing histograms: each query of Prometheus adds observations to them.

    In its middle a counter appears, with its first increment.
    """
    began = time.monotonic()
    is_counted = False
    while (passed_s := time.monotonic() - began) < SCRAPED_S:
        ask(senders.prometheus, EVERYTHING, int(time.time() * 1000))
        if not is_counted and passed_s > SCRAPED_S / 2:
            with urllib.request.urlopen(f"http://{senders.prometheus}/api/v1/labels", timeout=60):
                is_counted = True
        threading.Event().wait(0.3)
    return Span(int(time.time() * 1000) - 1000, int(SCRAPED_S * 1000))


def memory_from_ms(role: Role) -> int:
    """The time from which memory of all partitions is whole."""
    with connect(role.grpc) as client:
        return max(state.coverage_start_ms for state in client.coverage())


def test_prometheus_and_both_receivers_answer_the_same_of_histograms_and_starts(senders: Senders) -> None:
    span = scraped(senders)
    senders.wait_equal(span)
    natives = ask(senders.two.http, "count by (job) (histogram_count(" + EVERYTHING + "))", span.at_ms)
    assert [float(one["value"][1]) > 10 for one in natives] == [True, True]
    starts = ask(senders.two.http, "start_timestamp(prometheus_http_request_duration_seconds)", span.at_ms)
    assert starts
    assert all(float(one["value"][1]) > 1e9 for one in starts)
    (first,) = span.queries([FIRST_INCREMENT])
    grown = ask(senders.two.http, first, span.at_ms)
    assert [float(one["value"][1]) >= 1.0 for one in grown] == [True, True]
    for role in (senders.one, senders.two):
        role.kill()
        role.start()
    senders.wait_equal(span)
    for role in (senders.one, senders.two):
        wait_until(lambda role=role: memory_from_ms(role) > span.at_ms, EVICTED_WITHIN_S)  # type: ignore[misc]
        answered = role.metrics()['tsdb_query_partitions_answered_total{source="history"}']
        assert ask(role.http, EVERY_NATIVE, span.at_ms) == ask(senders.prometheus, EVERY_NATIVE, span.at_ms)
        assert role.metrics()['tsdb_query_partitions_answered_total{source="history"}'] > answered
    senders.wait_equal(span)
    end_ms = int(time.time() * 1000) - 1000
    senders.wait_equal(Span(end_ms, end_ms - span.at_ms + span.range_ms))

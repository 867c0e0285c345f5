"""Clients of Prometheus that people use, against a standalone process: prometheus-api-client and promtool.

Samples come by remote write; each client reads them back with its own requests.
"""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from support.promql.differential.dataset import StoredSamples
from support.promql.differential.prometheus import write
from support.senders.prometheus import binary
from support.servers.logs import wait_until
from support.servers.processes import Role

STEP_MS = 5_000
SAMPLES_EACH = 120
INSTANCES = ("i0", "i1", "i2")
TOKEN = "a-token-for-tests"
AUTHORIZATION = {"Authorization": f"Bearer {TOKEN}"}
WITHIN_S = 60.0

pytestmark = pytest.mark.timeout(600)  # The start of a process loads or compiles all kernels.


@dataclass(frozen=True)
class Served:
    """A process whose newest sample is at end_ms."""

    role: Role
    end_ms: int

    @property
    def url(self) -> str:
        return f"http://{self.role.http}"

    @property
    def end(self) -> datetime:
        return datetime.fromtimestamp(self.end_ms / 1000, UTC)

    @property
    def start(self) -> datetime:
        return datetime.fromtimestamp((self.end_ms - STEP_MS * (SAMPLES_EACH - 1)) / 1000, UTC)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    scratch = tmp_path_factory.mktemp("clients")
    end_ms = time.time_ns() // 1_000_000 // 1000 * 1000
    times = [end_ms - STEP_MS * (SAMPLES_EACH - 1 - at) for at in range(SAMPLES_EACH)]
    series = []
    for number, instance in enumerate(INSTANCES):
        gauge = (("__name__", "temperature_celsius"), ("instance", instance), ("room", "a"))
        series.append(StoredSamples(gauge, [(at, number + index / 8) for index, at in enumerate(times)]))
        counter = (("__name__", "requests_total"), ("instance", instance))
        series.append(StoredSamples(counter, [(at, 10.0 * index) for index, at in enumerate(times)]))
    with Role(scratch, "standalone", "--data-dir", str(scratch / "data")) as role:
        write(role.http, series)
        with PrometheusConnect(url=f"http://{role.http}") as client:
            wait_until(lambda: _samples(client) == SAMPLES_EACH * len(series), WITHIN_S)
        yield Served(role, end_ms)


def _samples(client: PrometheusConnect) -> int:
    """Samples that queries see by now: partitions show theirs one after another."""
    return sum(int(row["value"][1]) for row in client.custom_query('count_over_time({__name__=~".+"}[1h])'))


@pytest.fixture
def client(served: Served) -> Iterator[PrometheusConnect]:
    with PrometheusConnect(url=served.url) as made:
        yield made


def test_the_python_client_finds_names_and_labels(served: Served, client: PrometheusConnect) -> None:
    assert client.check_prometheus_connection()
    assert client.all_metrics() == ["requests_total", "temperature_celsius"]
    assert client.get_label_names() == ["__name__", "instance", "room"]
    assert client.get_label_values("instance") == list(INSTANCES)
    asked = {"match[]": 'temperature_celsius{instance="i1"}'}
    assert client.get_series(served.start, served.end, asked) == [
        {"__name__": "temperature_celsius", "instance": "i1", "room": "a"}
    ]
    assert client.get_targets() == {"activeTargets": [], "droppedTargets": []}


def test_the_python_client_queries(served: Served, client: PrometheusConnect) -> None:
    at = {"time": served.end_ms / 1000}
    found = client.get_current_metric_value("temperature_celsius", {"room": "a"}, at)
    assert sorted(row["value"][1] for row in found) == ["14.875", "15.875", "16.875"]
    assert client.custom_query("sum(rate(requests_total[1m]))", at) == [
        {"metric": {}, "value": [served.end_ms / 1000, "6"]}
    ]
    rows = client.custom_query_range('temperature_celsius{instance="i2"}', served.start, served.end, "5s")
    assert [float(value) for _, value in rows[0]["values"]] == [2 + index / 8 for index in range(SAMPLES_EACH)]
    (raw,) = client.get_metric_range_data("temperature_celsius", {"instance": "i0"}, served.start, served.end)
    assert len(raw["values"]) >= SAMPLES_EACH - 1  # A range of PromQL leaves its start out.
    aggregated = client.get_metric_aggregation(
        'temperature_celsius{instance="i0"}', ["min", "max"], served.start, served.end, "5"
    )
    assert aggregated == {"min": 0.0, "max": (SAMPLES_EACH - 1) / 8}


def test_the_python_client_shows_our_errors(client: PrometheusConnect) -> None:
    with pytest.raises(PrometheusApiClientException, match="parse error: unclosed left parenthesis"):
        client.custom_query("sum(rate(")


def test_promtool_asks_everything(served: Served) -> None:
    assert "temperature_celsius" in _promtool("query", "instant", served.url, "temperature_celsius offset 10s")
    steps = (f"--start={served.end_ms // 1000 - 60}", f"--end={served.end_ms // 1000}", "--step=15s")
    found = _promtool("query", "range", *steps, served.url, "sum(temperature_celsius)")
    assert len([line for line in found.splitlines() if "@[" in line]) == 5
    found = _promtool("query", "series", '--match={room="a"}', served.url)
    assert len(found.split()) >= len(INSTANCES)
    assert all(f'instance="{instance}"' in found for instance in INSTANCES)
    assert _promtool("query", "labels", served.url, "instance").split() == list(INSTANCES)


@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_probes_are_at_prometheus_paths(served: Served, path: str) -> None:
    """As `promtool check healthy` and `check ready` ask them; Debian's promtool has not these commands."""
    with closing(http.client.HTTPConnection(served.role.http, timeout=30)) as connection:
        connection.request("GET", path)
        assert connection.getresponse().status == 200


def test_a_token_is_sent_as_a_header(tmp_path: Path) -> None:
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), env={"TSDB_TOKEN": TOKEN}) as role:
        with PrometheusConnect(url=f"http://{role.http}", headers=AUTHORIZATION) as client:
            assert client.custom_query("vector(7)")[0]["value"][1] == "7"
        with (
            PrometheusConnect(url=f"http://{role.http}") as client,
            pytest.raises(PrometheusApiClientException, match="HTTP Status Code 401"),
        ):
            client.custom_query("vector(7)")


def _promtool(*arguments: str) -> str:
    done = subprocess.run([binary("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout

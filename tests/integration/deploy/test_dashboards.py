"""Every expression of the dashboards and alerts runs against a standalone process that holds what it is about."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest

from support.deploy_files import ROOT, alerts
from support.grafana.dashboards import (
    HOST,
    PANEL_POINTS,
    Target,
    interpolated,
    metric_names,
    system_targets,
    targets,
    variables,
)
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json

NODE = ROOT / "tests/data/node_5s.parquet"
RANGE_S = 3600
STEP_S = 15
CHUNK_STAGE = "tsdb_query_chunk_stage_emitted_through_timestamp_seconds"
SCRAPE_LABELS = {"role"}  # deploy/prometheus/prometheus.yml sets it.
SYSTEM_JOB, AGENT_JOB = "kafka-tsdb", "agent"
AGENT_SHOWN_MIN = 25
# Spark, the canary and a querier beside its stores are other processes. Counters by reason begin with a failure.
# Memory that has the whole log has no margin, and history begins with the first window.
UNSTARTED = re.compile(
    "tsdb_spark_|tsdb_canary_|tsdb_query_partition_ready|tsdb_query_next_store_total"
    "|tsdb_query_(seam_margin|history_loaded_through_timestamp)_seconds|tsdb_(chunk_stage|log_topic)_[a-z]+_failures_total"
    # Metrics of clients of Kafka, which this process does not load.
    "|tsdb_log_renewals_total|tsdb_log_member_joining_seconds"
)

# The start of a process loads or compiles all kernels.
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Server:
    """A process with a node exporter's samples, those of an agent, and its own metrics."""

    address: str
    names: frozenset[str]

    def ask(self, path: str, **parameters: Any) -> Any:
        """The data of an answer. The request is a POST, like Grafana's."""
        body = urlencode(parameters, doseq=True).encode()
        with urlopen(Request(f"http://{self.address}/api/v1/{path}", body), timeout=60) as answer:
            read = json.loads(answer.read())
        assert read["status"] == "success", read
        return read["data"]

    def panel(self, expression: str) -> list[dict[str, Any]]:
        """Series of a query_range over the last hour. Its last step is after the newest samples."""
        end_s = (time.time() // STEP_S + 1) * STEP_S
        data = self.ask("query_range", query=expression, start=end_s - RANGE_S, end=end_s, step=STEP_S)
        assert data["resultType"] == "matrix"
        found: list[dict[str, Any]] = data["result"]
        return found


def label_values(address: str, label: str, selector: str = "") -> list[str]:
    match = f"?match[]={quote(selector)}" if selector else ""
    with urlopen(f"http://{address}/api/v1/label/{label}/values{match}", timeout=60) as answer:
        found: list[str] = json.loads(answer.read())["data"]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    scratch = tmp_path_factory.mktemp("dashboards")
    with Role(scratch, "standalone", "--data-dir", str(scratch / "data")) as role:
        tsdb_json("write", str(NODE), "--address", role.grpc, "--shift-to-now")
        wait_until(lambda: len(label_values(role.http, "__name__")) > 280, 60.0)
        # A rate needs two scrapes, and a busy machine may miss some. The standalone has the metrics of its chunk stage
        # once its querier has looked at the stage.
        wait_until(
            lambda: _scrapes_after_agent(role) >= 2 and CHUNK_STAGE in label_values(role.http, "__name__"), 120.0
        )
        yield Server(role.http, frozenset(label_values(role.http, "__name__")))


def _scrapes_after_agent(role: Role) -> float:
    """Run the agent for some rounds; the number of scrapes that the store has."""
    scrape = f"{SYSTEM_JOB}=http://{role.http}/metrics"
    agent = ("agent", "--address", role.grpc, "--job", AGENT_JOB, "--instance", "here", "--scrape", scrape)
    tsdb_json(*agent, "--interval", "1s", "--duration", "4s")
    found = Server(role.http, frozenset()).ask("query", query="max(count_over_time(tsdb_store_samples[2m]))")["result"]
    return float(found[0]["value"][1]) if found else 0.0


def host_variables(server: Server, job: str) -> dict[str, str]:
    """Values of the dashboard's variables, asked as Grafana asks for them."""
    values: dict[str, str] = {}
    for variable in variables(HOST):
        selector = interpolated(variable.selector, values, RANGE_S)
        choices = label_values(server.address, variable.label, selector)
        assert choices, variable
        values[variable.name] = job if job in choices else choices[0]
    return values


@pytest.mark.parametrize("target", targets(HOST), ids=str)
def test_the_dashboard_of_a_host_shows_a_node_exporter(server: Server, target: Target) -> None:
    expression = interpolated(target.expression, host_variables(server, "node"), RANGE_S)
    found = server.panel(expression)
    assert found, expression
    assert all(target.legend_labels <= series["metric"].keys() for series in found)


def test_the_dashboard_of_a_host_shows_an_agent(server: Server) -> None:
    values = host_variables(server, AGENT_JOB)
    assert values == {"job": AGENT_JOB, "instance": "here"}
    held = label_values(server.address, "__name__", f'{{job="{AGENT_JOB}"}}')
    expressions = [interpolated(target.expression, values, RANGE_S) for target in targets(HOST)]
    shown = [expression for expression in expressions if metric_names(expression) <= set(held)]
    assert [expression for expression in shown if not server.panel(expression)] == []
    # A container may have no disk and no filesystem.
    assert len(shown) >= AGENT_SHOWN_MIN


@pytest.mark.parametrize("target", system_targets(), ids=str)
def test_the_dashboard_of_the_system_shows_the_process(server: Server, target: Target) -> None:
    expression = interpolated(target.expression, {}, RANGE_S)
    found = server.panel(expression)
    # A role that does not run here has no metrics: of those the expression runs, with an empty answer.
    assert found or not metric_names(expression) <= server.names, expression
    assert all(target.legend_labels - SCRAPE_LABELS <= series["metric"].keys() for series in found)


def test_metrics_without_a_series_are_of_other_processes_and_of_failures(server: Server) -> None:
    used = {name for target in system_targets() for name in metric_names(interpolated(target.expression, {}, RANGE_S))}
    missing = used - server.names
    assert {name for name in missing if not UNSTARTED.match(name)} == set()
    assert len(missing) < len(used) / 3


def test_expressions_of_alerts_run(server: Server) -> None:
    for alert in alerts():
        assert server.ask("query", query=alert["expr"])["resultType"] == "vector", alert["alert"]


def test_a_long_range_has_larger_intervals() -> None:
    assert interpolated("[$__rate_interval] $__interval", {}, RANGE_S) == "[60s] 15s"
    assert interpolated("[${__rate_interval}] $__range", {}, PANEL_POINTS * 60) == "[75s] 60000s"

"""The back end of Grafana's data source asks a secured process, with the provisioned settings of deploy/grafana."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from support.api.secured import TOKEN, SecuredServer, secured_standalone
from support.deploy_files import ROOT
from support.documents import blocks
from support.grafana.dashboards import HOST, data_source, interpolated, targets
from support.grafana.data_source import PROMLIB, Resource, ask
from support.senders.go_senders import built
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json
from tsdb.api.prometheus.pages.status import PROMETHEUS_VERSION
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown

PAGE = ROOT / "docs/grafana.md"
NODE = ROOT / "tests/data/node_5s.parquet"
HOUR_MS = 3_600_000
VALUES = {"job": "node", "instance": "host-1:9100"}
_FILE = re.compile(r"\$__file\{(.+)\}")

# The first run builds the back end: two minutes of CPU.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    built(PROMLIB)  # A machine without Go skips the tests before the process starts.
    with secured_standalone(tmp_path_factory.mktemp("grafana")) as made:
        tsdb_json("write", str(NODE), *made.client_flags, "--shift-to-now")
        wait_until(lambda: len(made.ask("label/__name__/values")) > 280, 60.0)
        yield made


@pytest.fixture
def settings(server: SecuredServer) -> dict[str, Any]:
    """The provisioned data source, with the lines of the page that add TLS."""
    found = data_source(QUERIER_URL=server.url, TSDB_TOKEN=TOKEN)
    added = yaml.safe_load(next(block.text for block in blocks(PAGE) if block.section == "TLS"))
    for part in ("jsonData", "secureJsonData"):
        found[part].update(added[part])
    named = _FILE.fullmatch(found["secureJsonData"]["tlsCACert"])
    assert named
    found["secureJsonData"]["tlsCACert"] = (server.folder / Path(named[1]).name).read_text()
    return found


def span_ms(server: SecuredServer) -> tuple[int, int]:
    """The last hour, up to the newest sample."""
    (newest,) = server.ask("query", query=f'max(timestamp(node_load1{{job="{VALUES["job"]}"}}))')["result"]
    end_ms = int(float(newest["value"][1]) * 1000)
    return end_ms - HOUR_MS, end_ms


def test_save_and_test_succeeds(settings: dict[str, Any]) -> None:
    health = ask(settings).health
    assert (health["status"], health["message"]) == ("OK", "Successfully queried the Prometheus API.")
    assert health["details"]["application"] == "Prometheus"


def test_no_token_is_needed_where_the_querier_has_none(tmp_path: Path) -> None:
    built(PROMLIB)
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data")) as role:
        health = ask(data_source(QUERIER_URL=f"http://{role.http}", TSDB_TOKEN="")).health
    assert (health["status"], health["message"]) == ("OK", "Successfully queried the Prometheus API.")


def test_save_and_test_names_a_wrong_token(settings: dict[str, Any]) -> None:
    settings["secureJsonData"]["httpHeaderValue1"] = "Bearer wrong"
    health = ask(settings).health
    assert health["status"] == "ERROR"
    assert health["message"].startswith("401 Unauthorized")


def test_the_provisioned_version_is_that_of_the_api(settings: dict[str, Any]) -> None:
    assert settings["jsonData"]["prometheusVersion"] == PROMETHEUS_VERSION


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_every_panel_of_a_host_has_points(settings: dict[str, Any], server: SecuredServer, method: str) -> None:
    settings["jsonData"]["httpMethod"] = method
    asked = {str(target): target for target in targets(HOST)}
    # The back end replaces variables that begin with $__.
    models = {
        name: {"expr": re.sub(r"\$(job|instance)", lambda match: VALUES[match[1]], target.expression), "range": True}
        for name, target in asked.items()
    }
    answer = ask(settings, queries=models, span_ms=span_ms(server))
    assert [name for name in asked if answer.points(name) < 2] == []


def test_instant_and_exemplar_queries_and_errors(settings: dict[str, Any], server: SecuredServer) -> None:
    models: dict[str, dict[str, Any]] = {
        "instant": {"expr": "node_load1", "instant": True, "format": "table"},
        "exemplars": {"expr": "node_load1", "range": True, "exemplar": True},
        "wrong": {"expr": "rate(node_load1)", "range": True},
        "nothing": {"expr": "nothing_here", "range": True},
    }
    answer = ask(settings, queries=models, span_ms=span_ms(server))
    assert answer.points("instant") == 1
    assert answer.points("exemplars") > 100
    assert answer.points("nothing") == 0
    assert "expected type range vector" in answer.queries["wrong"]["error"]


def test_parameters_of_ours_go_with_every_query(settings: dict[str, Any], server: SecuredServer) -> None:
    settings["jsonData"]["customQueryParameters"] = "allow_holes=1&allow_stale=1"
    answer = ask(settings, queries={"A": {"expr": "node_load1", "range": True}}, span_ms=span_ms(server))
    assert answer.points("A") > 100


def test_the_query_editor_gets_labels_values_and_metadata(settings: dict[str, Any], server: SecuredServer) -> None:
    start_s, end_s = (at_ms / 1000 for at_ms in span_ms(server))
    span = f"start={start_s}&end={end_s}"
    match = quote("node_cpu_seconds_total")
    answer = ask(
        settings,
        resources=[
            Resource("api/v1/label/mode/values", query=f"{span}&match[]={match}"),
            Resource("api/v1/labels", "POST", body=f"{span}&match[]={match}"),
            Resource("api/v1/series", "POST", body=f"{span}&match[]={match}"),
            Resource("api/v1/metadata", query="limit=10"),
            Resource("api/v1/status/buildinfo"),
            Resource(
                "suggestions", "POST", body=json.dumps({"labelName": "mode", "queries": ["node_cpu_seconds_total"]})
            ),
        ],
    )
    assert [status for status, _ in answer.resources] == [200] * 6
    values, labels, series, metadata, build, suggestions = (body["data"] for _, body in answer.resources)
    assert {"idle", "user", "system"} <= set(values)
    assert labels == ["__name__", "cpu", "instance", "job", "mode"]
    assert len(series) == 16
    assert metadata == {}  # Parquet has none.
    assert build["version"].startswith(PROMETHEUS_VERSION)
    assert {"idle", "user", "system"} <= set(suggestions)


def test_the_rule_of_the_page_for_alerts_has_a_value(settings: dict[str, Any], server: SecuredServer) -> None:
    rule = yaml.safe_load(next(block.text for block in blocks(ROOT / "docs/alerting.md") if block.section == "Grafana"))
    asked, threshold = rule["groups"][0]["rules"][0]["data"]
    assert asked["datasourceUid"] == settings["uid"]
    assert threshold["model"]["expression"] == asked["refId"]
    answer = ask(settings, queries={asked["refId"]: asked["model"]}, span_ms=span_ms(server))
    assert answer.points(asked["refId"]) == 1


def test_variables_that_the_back_end_replaces_are_replaced_alike(
    settings: dict[str, Any], server: SecuredServer
) -> None:
    """So the expressions of the other tests are those that Grafana sends."""
    text = "vector($__range_s) + rate(node_load1[$__rate_interval]) * 0"
    begin_ms, end_ms = span_ms(server)
    answer = ask(settings, queries={"A": {"expr": text, "range": True}}, span_ms=(begin_ms, end_ms))
    executed = answer.frames("A")[0]["schema"]["meta"]["executedQueryString"]
    expression, _, step = executed.removeprefix("Expr: ").partition("\nStep: ")
    assert shown(parse(expression)) == shown(parse(interpolated(text, {}, HOUR_MS // 1000)))
    assert step == interpolated("$__interval", {}, HOUR_MS // 1000)

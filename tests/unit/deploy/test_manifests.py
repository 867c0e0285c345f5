"""Files in deploy/ match the product: objects match their schemas, command lines the command, expressions the
metrics.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import typer
import yaml

from support.deploy_files import ROOT, Manifest, alerts, command_lines, manifests, schema_faults, variables
from support.grafana.dashboards import boards, system_targets
from tsdb.cli.main import app
from tsdb.config.common import CommonSettings
from tsdb.config.load import ROLES
from tsdb.ops.http.app import HEALTHY, READY

ALL = manifests()
METRIC = re.compile(r"\b(?:tsdb|process)_[a-z0-9_]+\b")
SUFFIXES = ("_bucket", "_sum", "_count")
IDS = [str(manifest) for manifest in ALL]


@pytest.mark.parametrize("manifest", ALL, ids=IDS)
def test_every_object_is_one_of_the_published_schema(manifest: Manifest) -> None:
    assert schema_faults(manifest) == []


def test_an_unknown_field_a_value_of_another_type_and_a_missing_one_are_found() -> None:
    deployment = next(one for one in ALL if one.value["kind"] == "Deployment" and "replicas" in one.value["spec"])
    assert "'two' is not of type" in _fault(deployment, lambda spec: spec.update(replicas="two"))
    assert "'replica' was unexpected" in _fault(deployment, lambda spec: spec.update(replica=2))
    assert "'selector' is a required property" in _fault(deployment, lambda spec: spec.pop("selector"))


def _fault(manifest: Manifest, change: Callable[[dict[str, Any]], object]) -> str:
    broken = json.loads(json.dumps(manifest.value))
    change(broken["spec"])
    return "\n".join(schema_faults(Manifest("", broken)))


def test_every_role_has_an_object_and_a_service_of_compose() -> None:
    roles = {"gateway", "store", "chunker", "loader", "querier"}
    lines = list(command_lines())
    assert {args[0] for where, args in lines if where.startswith("kubernetes/")} >= roles
    assert {args[0] for where, args in lines if where.startswith("compose.yaml")} >= roles


@pytest.mark.parametrize(("where", "arguments"), list(command_lines()), ids=[where for where, _ in command_lines()])
def test_every_command_line_is_one_of_the_command(where: str, arguments: list[str]) -> None:
    # Typer brings its own copy of click, so a group is recognised by its attributes.
    command: Any = typer.main.get_command(app)
    rest = list(arguments)
    while hasattr(command, "commands"):
        name = rest.pop(0)
        assert name in command.commands, f"{where}: no command {name}"
        command = command.commands[name]
    # The command is parsed and not run. An unknown flag, a missing value, or an invalid value raises.
    command.make_context("tsdb", rest, resilient_parsing=False)


@pytest.mark.parametrize(("where", "name"), sorted(set(variables())))
def test_every_variable_of_ours_is_a_setting(where: str, name: str) -> None:
    known = {field for settings in ROLES.values() for field in settings.model_fields} | {"config"}
    if name.startswith("TSDB_"):
        assert name.removeprefix("TSDB_").lower() in known, where


def test_the_settings_file_is_one_that_every_role_takes() -> None:
    data = next(
        one.value["data"] for one in ALL if one.value["kind"] == "ConfigMap" and "tsdb.toml" in one.value["data"]
    )
    known = {field for settings in ROLES.values() for field in settings.model_fields}
    assert tomllib.loads(data["tsdb.toml"]).keys() <= known


@pytest.mark.parametrize(
    "manifest", [one for one in ALL if one.value["kind"] in ("Deployment", "StatefulSet")], ids=str
)
def test_roles_have_the_documented_probes_and_select_their_own_pods(manifest: Manifest) -> None:
    spec = manifest.value["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": HEALTHY,
        "liveness": HEALTHY,
        "readiness": READY,
    }
    assert all(probe["port"] in ports for probe in probes.values())
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    # Kubernetes waits longer than this before it kills.
    pause = container.get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})["preStop"]["sleep"]["seconds"]
    assert (
        spec["template"]["spec"]["terminationGracePeriodSeconds"]
        > pause + CommonSettings.model_fields["drain_s"].default
    )


def test_every_metric_in_alerts_and_dashboards_is_documented() -> None:
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    expressions = [target.expression for target in system_targets()] + [alert["expr"] for alert in alerts()]
    used = {name for text in expressions for name in METRIC.findall(text)}
    assert len(used) > 20
    assert [name for name in used if name not in known and _base(name) not in known] == []


def test_every_aggregation_of_a_rule_keeps_the_installation() -> None:
    """One Prometheus may watch several: partition 0 of one must not hide that of another."""
    groups = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        words = re.findall(r"\b(?:sum|max|min|count|avg|group)\b[^(]*\([^)]*|\bon \([^)]*", rule["expr"])
        for word in words:
            assert "(namespace, cluster" in word, (rule, word)


def test_every_alert_has_a_section_in_the_runbooks() -> None:
    pages = (ROOT / "docs/runbooks").glob("*.md")
    headings = [found for page in pages for found in re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)]
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for alert in alerts():
        assert alert["annotations"]["runbook"] in anchors, alert["alert"]
        assert alert["labels"]["severity"] in ("page", "ticket", "heartbeat"), alert["alert"]


@pytest.mark.parametrize("board", boards().values(), ids=boards())
def test_every_panel_has_a_number_and_a_place(board: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [(place["y"], column) for place in places for column in range(place["x"], place["x"] + place["w"])]
    assert len(cells) == len(set(cells))
    assert all(column < 24 for _, column in cells)
    # A panel belongs to the row before it.
    assert [place["y"] for place in places] == sorted(place["y"] for place in places)


@pytest.mark.parametrize("board", boards().values(), ids=boards())
def test_panels_ask_the_data_source_that_is_chosen(board: dict[str, Any]) -> None:
    assert {panel["datasource"]["uid"] for panel in board["panels"] if panel["type"] != "row"} == {"${datasource}"}
    assert board["templating"]["list"][0]["name"] == "datasource"


def _base(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)

"""`tsdb plan --output helm-values`: values that the chart takes, with the sizes of the plan."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from support.cli import Shell
from support.deploy_files import DEPLOY, parsed, run_tool, schema_faults
from tsdb.cli.plan.load import GIB, Load
from tsdb.cli.plan.roles import roles
from tsdb.cli.plan.shards import divide

LOADS = {"small": ("10k", "15s"), "spark": ("2.25M", "15s"), "large": ("30M", "10s")}


@pytest.fixture
def shell(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsysbinary, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_the_chart_takes_the_values_and_renders_the_plan(name: str, shell: Shell, tmp_path: Path) -> None:
    series, interval = LOADS[name]
    text = shell.ok("plan", "--series", series, "--interval", interval, "--output", "helm-values").text
    values = yaml.safe_load(text)
    assert values == json.loads(text)
    (tmp_path / "values.yaml").write_text(text)
    chart = str(DEPLOY / "helm/kafka-tsdb")
    # The chart's own checks refuse a hold above the memory of stores at this load, and a limit below the heads.
    objects = parsed("helm", run_tool("helm", "template", "x", chart, "-n", "a", "-f", str(tmp_path / "values.yaml")))
    assert [fault for one in objects for fault in schema_faults(one)] == []

    load = Load(values["expected"]["series"], 1000 * int(interval.removesuffix("s")))
    division = divide(load)
    stores = [one.value["spec"] for one in objects if one.value["kind"] == "StatefulSet"]
    assert [one["replicas"] for one in stores] == [load.replicas] * division.shards
    by_name = {role.name: role for role in roles(load, division)}
    for one in objects:
        if one.value["kind"] == "Deployment" and one.name in by_name:
            role = by_name[one.name]
            (container,) = one.value["spec"]["template"]["spec"]["containers"]
            assert container["resources"]["limits"]["memory"] == f"{role.memory_bytes // GIB}Gi"
            assert container["resources"]["requests"]["cpu"] == str(role.cores)
    settings = next(one.value["data"]["tsdb.toml"] for one in objects if "tsdb.toml" in one.value.get("data", {}))
    assert tomllib.loads(settings)["memory_soft_bytes"] == division.soft_bytes
    assert ("spark executor" in by_name) == any(one.name == "spark" for one in objects)

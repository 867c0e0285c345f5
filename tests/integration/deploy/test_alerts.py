"""Alerts fire and rest as they should; expressions of alerts and dashboards parse. By promtool of Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deploy_files import DEPLOY, alerts
from support.grafana.dashboards import boards, interpolated, targets
from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.rules.unit_tests.file import load_unit_tests
from tsdb.rules.unit_tests.run import run_unit_tests

HERE = Path(__file__).parent
TESTS = (
    "alerts_test.yaml",
    "alerts_hours_test.yaml",
    "alerts_absence_test.yaml",
    "alerts_rules_test.yaml",
    "alerts_tables_test.yaml",
)
ALWAYS_FIRING = {"DeadMansSwitch"}


def promtool(*arguments: str, folder: Path) -> None:
    done = promtool_run(*arguments, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def promtool_run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = shutil.which("promtool") or str(Path(sys.executable).parent / "promtool")
    assert Path(command).is_file(), "promtool is missing: `make programs` installs it"
    return subprocess.run([command, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_alerts_fire_and_rest_as_their_tests_say(tmp_path: Path) -> None:
    for file in (*(HERE / name for name in TESTS), DEPLOY / "prometheus/alerts.yaml"):
        shutil.copy(file, tmp_path)
    promtool("test", "rules", *TESTS, folder=tmp_path)


# The file of hours and that of absent series take six seconds of CPU. promtool runs all files each time.
OF_OURS = [pytest.param(name, marks=[pytest.mark.soak] if name in TESTS[1:3] else []) for name in TESTS]


@pytest.mark.parametrize("name", OF_OURS)
def test_each_case_of_the_shipped_alerts_holds_in_our_ruler(tmp_path: Path, name: str) -> None:
    for file in (HERE / name, DEPLOY / "prometheus/alerts.yaml"):
        shutil.copy(file, tmp_path)
    assert run_unit_tests(load_unit_tests(tmp_path / name), DEFAULTS) == []


def test_a_case_of_alerts_with_other_samples_fails_in_our_ruler_and_in_promtool(tmp_path: Path) -> None:
    """The expected samples of each case are taken away, or one is added."""
    shutil.copy(DEPLOY / "prometheus/alerts.yaml", tmp_path)
    broken = yaml.load((HERE / TESTS[0]).read_text(), yaml.BaseLoader)  # `0x60` stays a text.
    cases = [case for group in broken["tests"] for case in group["promql_expr_test"]]
    for case in cases:
        case["exp_samples"] = [] if case["exp_samples"] else [{"labels": "{}", "value": 17}]
    (tmp_path / "broken.yaml").write_text(json.dumps(broken))
    found = run_unit_tests(load_unit_tests(tmp_path / "broken.yaml"), DEFAULTS)
    assert len(found) == len(cases)
    done = promtool_run("test", "rules", "broken.yaml", folder=tmp_path)
    assert (done.returncode, (done.stdout + done.stderr).count("    expr: ")) == (1, len(cases))


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    for file in ("prometheus.yml", "alerts.yaml"):
        shutil.copy(DEPLOY / "prometheus" / file, tmp_path)
    promtool("check", "config", "prometheus.yml", folder=tmp_path)


def test_every_alert_is_tested_firing_and_at_rest() -> None:
    """At rest means that the alert does not fire, before its time or for another series of the same test."""
    groups: list[dict[str, Any]] = [
        group for name in TESTS for group in yaml.safe_load((HERE / name).read_text())["tests"]
    ]
    cases = [case for group in groups for case in group["promql_expr_test"]]
    for alert in (one["alert"] for one in alerts()):
        own = [case for case in cases if f'alertname="{alert}"' in case["expr"]]
        fired = [case for case in own if case["exp_samples"]]
        assert fired, f"{alert} is never fired"
        others = any("by (" in case["expr"] for case in fired)
        at_rest = others or any(not case["exp_samples"] for case in own)
        assert at_rest != (alert in ALWAYS_FIRING), f"{alert}: at rest {at_rest}"


def test_expressions_of_dashboards_parse(tmp_path: Path) -> None:
    values = {"job": "j", "instance": "i"}
    texts = [interpolated(target.expression, values, 3600) for board in boards() for target in targets(board)]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    assert len(rules) > 100
    (tmp_path / "panels.yaml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "panels.yaml", folder=tmp_path)

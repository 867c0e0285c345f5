"""checkov over every object of deploy/kubernetes finds what deploy/accepted-findings.yaml has, and no more."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.deploy_files import DEPLOY, ROOT, manifests

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
CHECKOV = "checkov==3.3.30"
ACCEPTED: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "accepted-findings.yaml").read_text())


def test_every_finding_is_accepted_with_a_reason_and_every_acceptance_has_a_finding(tmp_path: Path) -> None:
    findings = _findings(tmp_path, [one.value for one in manifests() if one.name])
    new = {
        (check, name, text)
        for check, name, text in findings
        if check not in ACCEPTED or name not in ACCEPTED[check].get("objects", [name])
    }
    assert new == set()
    found = {(check, name) for check, name, _ in findings}
    assert {check for check, _ in found} == ACCEPTED.keys()
    named = {(check, name) for check, entry in ACCEPTED.items() for name in entry.get("objects", [])}
    assert named <= found
    assert {check: text for check, _, text in findings} == {check: entry["check"] for check, entry in ACCEPTED.items()}


def test_a_weakened_object_is_found(tmp_path: Path) -> None:
    store = next(one.value for one in manifests() if one.value["kind"] == "StatefulSet")
    weak = json.loads(json.dumps(store))
    weak["spec"]["template"]["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    assert "CKV_K8S_20" in {check for check, _, _ in _findings(tmp_path, [weak])}


def _findings(folder: Path, objects: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(check, name of the object, the check's text) of each failed check."""
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    command = [str(ROOT / "scripts/run-tool.sh"), CHECKOV, "checkov", "--framework", "kubernetes", "--output", "json"]
    # Without --skip-download it asks a service for guidelines.
    command += ["--skip-download", "--quiet", "--compact", "--file", str(folder / "objects.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.stdout.startswith("{"), done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 0
    return [
        (one["check_id"], one["resource"].rpartition(".")[2], one["check_name"])
        for one in report["results"]["failed_checks"]
    ]

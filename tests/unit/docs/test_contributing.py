"""Commands in the documents for contributors exist, and pre-commit runs what `make check` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from support import run_order

ROOT = Path(__file__).resolve().parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()
HELPED = re.findall(r"^([a-z-]+):.*## \S", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "SECURITY.md"])
def test_each_make_command_of_a_page_is_a_target(page: str) -> None:
    text = (ROOT / page).read_text()
    code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"\bmake ([a-z-]+)", "\n".join(code))) <= set(HELPED)


def test_each_public_target_is_in_make_help() -> None:
    (public,) = re.findall(r"^\.PHONY: (.*)", MAKEFILE, re.MULTILINE)
    assert sorted(public.split()) == sorted(HELPED)


def test_each_path_of_the_contributing_page_exists() -> None:
    code = re.findall(r"`([\w./-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = [name for name in code if "/" in name and not name.startswith((".venv", "~"))]
    assert [name for name in paths if not (ROOT / name).exists()] == []


def test_pre_commit_runs_the_commands_of_make_check() -> None:
    (recipe,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    wanted = [line.strip().removeprefix("@").replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == wanted


def test_the_workflow_runs_ci_and_keeps_packages_types_and_durations() -> None:
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    kept = [step["with"]["path"] for step in job["steps"] if "cache" in step.get("uses", "")]
    wanted = {"~/.cache/pip", "~/.cache/uv", "~/.m2/repository", ".stack/jars", ".mypy_cache"}
    assert wanted <= set(" ".join(kept).split())
    (artifact,) = [step["with"]["path"] for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert artifact == str(run_order.WRITTEN.relative_to(ROOT))

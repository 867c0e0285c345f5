"""docs/metrics.md lists exactly the metrics that the code declares, and their labels stay bounded."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "metrics.md"

# Each is bounded by the code or by the log. A new one belongs here only when its values are countable beforehand.
BOUNDED_LABELS = {
    "case",
    "code",
    "encoding",
    "engine",
    "kind",
    "method",
    "partition",
    "path",
    "phase",
    "protocol",
    "reason",
    "resolution",
    "result",
    "route",
    "server",
    "side",
    "source",
    "state",
    "topic",
    "version",
}


@cache
def generated() -> str:
    # A separate process, without the metrics of other tests in its registry.
    command = [sys.executable, "-W", "error", str(ROOT / "scripts" / "generate_metrics_doc.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(document: str) -> dict[str, tuple[str, list[str], str]]:
    table = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*) \|$", document, re.MULTILINE)
    return {name: (kind, re.findall(r"`(\w+)`", labels), meaning) for name, kind, labels, meaning in table}


@pytest.mark.slow
def test_every_declared_metric_is_documented_and_every_documented_one_declared() -> None:
    declared, documented = rows(generated()), rows(DOCUMENT.read_text())
    assert sorted(set(declared) - set(documented)) == [], "declared, not documented: run `make docs`"
    assert sorted(set(documented) - set(declared)) == [], "documented, not declared: run `make docs`"
    assert DOCUMENT.read_text() == generated(), "run `make docs`"


def test_labels_are_bounded() -> None:
    unbounded = {
        name: labels for name, (_, labels, _) in rows(DOCUMENT.read_text()).items() if set(labels) - BOUNDED_LABELS
    }
    assert unbounded == {}


def test_every_metric_says_what_it_means() -> None:
    silent = [name for name, (_, _, meaning) in rows(DOCUMENT.read_text()).items() if len(meaning) < 10]
    assert silent == []

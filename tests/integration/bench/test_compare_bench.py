"""`bench compare` runs: both servers answer alike, before and after a SIGKILL, and the table has a line a figure."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.compare.compare import ASKED
from bench.compare.compare_table import FIGURES
from support.senders.prometheus import binary

WITHIN_S = 300.0


@pytest.mark.soak  # 25 s of CPU; the other benchmarks use the same ground in every run.
def test_a_quick_run_measures_both_servers() -> None:
    options = ["--quick", "--series", "100", "--prometheus", binary("prometheus")]
    command = [sys.executable, "-m", "bench", "compare", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    heads, _, *lines, last = done.stdout.splitlines()
    found = json.loads(last)
    assert found["machine"]["date"]
    assert len(found["load_average"]) == 3
    for name in ("standalone", "prometheus"):
        assert f"{name} {found[name]['version']}" in heads
        assert all(found[name][figure] > 0 for figure in FIGURES), found[name]
        assert all(found[name]["queries"][question]["count"] >= 10 for question in ASKED)
    assert [name for name in ASKED if not any(line.startswith(f"| {name}: p50") for line in lines)] == []
    assert len(lines) == len(FIGURES) + len(ASKED)

"""The demo reads figures that the processes have."""

from __future__ import annotations

import re

from support.deploy_files import ROOT

METRIC = re.compile(r"""\.metric\(["'](\w+)["']""")


def test_every_metric_of_the_demo_is_documented() -> None:
    # The demo shows 0 for a metric that is not there.
    used = {name for file in (ROOT / "demo").glob("*.py") for name in METRIC.findall(file.read_text())}
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    assert len(used) > 10
    assert used - known == set()

"""The demo reads figures that the processes have."""

from __future__ import annotations

import re

import pytest

from demo.__main__ import page_url, stays_open
from support.deploy_files import ROOT
from tsdb.api.prometheus.parameters import Form
from tsdb.ops.http.bodies import HttpHead
from tsdb.ui.link import view_of

METRIC = re.compile(r"""\.metric\(["'](\w+)["']""")


def test_every_metric_of_the_demo_is_documented() -> None:
    # The demo shows 0 for a metric that is not there.
    used = {name for file in (ROOT / "demo").glob("*.py") for name in METRIC.findall(file.read_text())}
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    assert len(used) > 10
    assert used - known == set()


def test_the_link_of_the_demo_opens_with_its_expressions() -> None:
    query = page_url("127.0.0.1:1", ("up", 'rate(x{a="b"}[5s])')).partition("?")[2]
    view, problems = view_of(Form.of(HttpHead("GET", "/", query, {}), b""))
    assert ([panel.query for panel in view.panels], list(problems)) == (["up", 'rate(x{a="b"}[5s])'], [])


@pytest.mark.parametrize(
    ("environment", "want"), [({}, False), ({"DEMO_OPEN": "0"}, False), ({"DEMO_OPEN": "1"}, True)]
)
def test_the_demo_stays_open_when_asked(environment: dict[str, str], want: bool) -> None:
    assert stays_open(environment) is want

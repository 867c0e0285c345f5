"""The pages of Grafana and alerting: snippets parse; addresses, settings, metrics and versions on them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from support.deploy_files import ROOT
from support.documents import Block, blocks
from support.grafana.dashboards import FOLDER, boards
from support.grafana.data_source import PROMLIB
from support.senders.go_senders import VMALERT
from tsdb.api.prometheus.pages.status import PROMETHEUS_VERSION
from tsdb.config import ROLES

GRAFANA, ALERTING = ROOT / "docs/grafana.md", ROOT / "docs/alerting.md"
SNIPPETS = [block for page in (GRAFANA, ALERTING) for block in blocks(page) if block.language == "yaml"]
SETTING = re.compile(r"`((?:tls|token)_[a-z_]+)`")
METRIC = re.compile(r"`(tsdb_[a-z_]+)`")
URL = re.compile(r"https?://(?:querier|gateway)\.example:(\d+)")


@pytest.mark.parametrize("block", SNIPPETS, ids=str)
def test_a_snippet_parses(block: Block) -> None:
    assert yaml.safe_load(block.text)


@pytest.mark.parametrize("page", [GRAFANA, ALERTING], ids=lambda page: page.name)
def test_settings_metrics_and_ports_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    assert set(SETTING.findall(text)) <= ROLES["querier"].model_fields.keys()
    assert set(METRIC.findall(text)) <= set(METRIC.findall((ROOT / "docs/metrics.md").read_text()))
    port = str(ROLES["querier"].model_fields["http"].default).rpartition(":")[2]
    assert set(URL.findall(text)) == {port}


def test_versions_are_those_of_the_tests() -> None:
    assert f"| vmalert | {VMALERT.version.removeprefix('v')} |" in ALERTING.read_text()
    assert f"promlib {PROMLIB.version.removeprefix('v')} " in ALERTING.read_text()
    assert f" {PROMLIB.version}, in a Go program" in GRAFANA.read_text()
    assert f"| Prometheus, {PROMETHEUS_VERSION} |" in GRAFANA.read_text()


def test_every_file_of_grafana_and_every_dashboard_is_on_the_page() -> None:
    text = GRAFANA.read_text()
    files = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*")]
    assert [name for name in files if f"`{name}`" not in text] == []
    assert [board["title"] for board in boards().values() if f"| {board['title']} |" not in text] == []

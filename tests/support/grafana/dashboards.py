"""Dashboards of deploy/grafana: their expressions, as Grafana sends them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from support.deploy_files import DEPLOY
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import Expression, VectorSelector, children

FOLDER = DEPLOY / "grafana"
HOST = "kafka-tsdb-host"  # Dashboards of a user's data; the others show the system.
PANEL_POINTS = 1000  # About the pixels of a wide panel.
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))")
_LABEL_VALUES = re.compile(r"label_values\((?:(.*), *)?(\w+)\)")
_LEGEND_LABEL = re.compile(r"\{\{ *(\w+) *\}\}")


@dataclass(frozen=True, slots=True)
class Target:
    """One expression of a panel. board: uid of its dashboard."""

    board: str
    row: str
    panel: str
    ref: str
    expression: str
    legend: str

    def __str__(self) -> str:
        return f"{self.board}/{self.row}/{self.panel}/{self.ref}"

    @property
    def legend_labels(self) -> set[str]:
        return set(_LEGEND_LABEL.findall(self.legend))


@dataclass(frozen=True, slots=True)
class Variable:
    """A template variable whose values are those of a label. selector: the selector of the series; an empty one selects
    all series.
    """

    name: str
    label: str
    selector: str


def boards() -> dict[str, dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    return {board["uid"]: board for board in found}


def system_targets() -> list[Target]:
    """Every expression of the dashboards of the system."""
    return [target for board in boards() if board != HOST for target in targets(board)]


def targets(board: str) -> list[Target]:
    """Every expression of a dashboard, in the order of its panels."""
    found, row = [], ""
    for panel in boards()[board]["panels"]:
        row = panel["title"] if panel["type"] == "row" else row
        for target in panel.get("targets", []):
            found.append(Target(board, row, panel["title"], target["refId"], target["expr"], target["legendFormat"]))
    return found


def variables(board: str) -> list[Variable]:
    """Variables that ask the data source, in their order: a later one may use an earlier one."""
    found = []
    for variable in boards()[board]["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match, variable
            found.append(Variable(variable["name"], match[2], match[1] or ""))
    return found


def interpolated(text: str, values: Mapping[str, str], range_s: int) -> str:
    """The text with all variables replaced. values: the values of template variables. A variable without a value is a
    KeyError.
    """
    scrape_s = _scrape_interval_s()
    interval_s = max(scrape_s, math.ceil(range_s / PANEL_POINTS))
    known = {
        "__interval": f"{interval_s}s",
        "__interval_ms": str(interval_s * 1000),
        "__rate_interval": f"{max(interval_s + scrape_s, 4 * scrape_s)}s",
        "__range": f"{range_s}s",
        "__range_s": str(range_s),
        "__range_ms": str(range_s * 1000),
        **values,
    }
    return _VARIABLE.sub(lambda match: known[match[1] or match[2]], text)


def metric_names(expression: str) -> set[str]:
    """Names of the metrics of an expression without variables."""
    return set(_names(parse(expression)))


def data_source(**environment: str) -> dict[str, Any]:
    """The provisioned data source, with variables of the environment replaced as Grafana does it."""
    text = (FOLDER / "provisioning/datasources/kafka-tsdb.yaml").read_text()
    # Comments have names of dashboards' variables.
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    (found,) = yaml.safe_load(_VARIABLE.sub(lambda match: environment[match[2]], "\n".join(lines)))["datasources"]
    assert isinstance(found, dict)
    return found


def _scrape_interval_s() -> int:
    text = data_source(QUERIER_URL="", TSDB_TOKEN="")["jsonData"]["timeInterval"]
    assert text.endswith("s")
    return int(text[:-1])


def _names(node: Expression) -> Iterator[str]:
    if isinstance(node, VectorSelector):
        assert node.name, f"a selector of a dashboard has no name: {node}"
        yield node.name
    for child in children(node):
        yield from _names(child)

"""Copies of a panel: as a command, as Python, as a panel of Grafana. Each asks for the same range and expression."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

import orjson

from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.promql.syntax.literals import shown_duration
from tsdb.ui.answers.graph import steps_asked, times_of
from tsdb.ui.answers.table import query_of
from tsdb.ui.pages.page import PageCall

FORMS = ("cli", "python", "grafana")
_GRAFANA_UNITS = {
    "bytes": "bytes",
    "seconds": "s",
    "percent": "percent",
    "ratio": "percentunit",
    "per_second": "reqps",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a panel. range: a duration before now, "" for a fixed range. address, has_tls: address of the gRPC
    server, and whether it uses TLS.
    """

    query: str
    range: str
    start_ms: int
    end_ms: int
    step_ms: int
    address: str
    has_tls: bool
    view: str = "graph"
    unit: str = ""
    axis: str = "linear"
    stack: bool = False


def copying(asked: PageCall) -> bytes:
    """Answers `/ui/copy`: `as` is one of FORMS. Raises BadParameter."""
    form = asked.call.form
    makers = {"cli": as_command, "python": as_python, "grafana": as_grafana_panel}
    maker = makers.get(form.get("as"))
    if maker is None:
        raise BadParameter("as", f"{form.get('as')!r} is none of {', '.join(FORMS)}")
    start_ms, end_ms = times_of(asked.call)
    is_fixed = bool(form.get("start") and form.get("end"))
    is_for_grafana = form.get("as") == "grafana"  # Grafana has the variables itself.
    query = form.get("query") if is_for_grafana else query_of(asked.call, start_ms, end_ms).text
    panel = Asked(
        query=valid_text(query),
        range="" if is_fixed else form.get("range"),
        start_ms=start_ms,
        end_ms=end_ms,
        step_ms=steps_asked(asked.call, start_ms, end_ms).step_ms,
        address=_address(asked),
        has_tls=asked.options.is_secure,
        view=form.get("view"),
        unit=form.get("unit"),
        axis=form.get("axis"),
        stack=form.flag("stack"),
    )
    return orjson.dumps({"status": "success", "text": maker(panel)})


def as_command(panel: Asked) -> str:
    """A line for a shell. A token comes from the environment."""
    parts = ["tsdb", "query"]
    if panel.view == "samples":
        parts.append("--raw")
    if panel.view == "table":
        parts += [] if panel.range else ["--at", str(panel.end_ms)]
    elif panel.range:
        parts += ["--last", panel.range]
    else:
        parts += ["--start", str(panel.start_ms), "--end", str(panel.end_ms)]
    if panel.view == "graph":
        parts += ["--step", shown_duration(panel.step_ms)]
    parts += ["--address", panel.address, *(["--tls"] if panel.has_tls else []), "--", panel.query]
    return shlex.join(parts)


def as_python(panel: Asked) -> str:
    """A program over the client of this project."""
    connect = f"connect({panel.address!r}{', tls=ClientTls()' if panel.has_tls else ''})"
    fixed = f"start_ms, end_ms = {panel.start_ms}, {panel.end_ms}"
    length_ms = panel.end_ms - panel.start_ms
    relative = f"end_ms = time.time_ns() // 1_000_000\nstart_ms = end_ms - {length_ms}"
    if panel.view == "samples":
        call = "client.select(query, start_ms, end_ms)"
    elif panel.view == "table":
        call = "client.query(query, end_ms)"
    else:
        call = f"client.query_range(query, start_ms, end_ms, {panel.step_ms})"
    times = relative if panel.range else fixed
    imports = "import time\n\n" if panel.range else ""
    return (
        f"{imports}from tsdb.client import connect\n\nquery = {panel.query!r}\n{times}\n"
        f"with {connect} as client:\n    print({call}.to_pandas())\n"
    )


def as_grafana_panel(panel: Asked) -> str:
    """JSON of a panel; its data source is the dashboard's default of type prometheus."""
    custom: dict[str, Any] = {"spanNulls": False, "fillOpacity": 30 if panel.stack else 0}
    if panel.axis == "log":
        custom["scaleDistribution"] = {"type": "log", "log": 10}
    if panel.stack:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    is_table = panel.view == "table"
    target = {"refId": "A", "expr": panel.query, "instant": is_table, "range": not is_table}
    made = {
        "type": "table" if is_table else "timeseries",
        "title": panel.query[:80],
        "datasource": {"type": "prometheus"},
        "targets": [target],
        "fieldConfig": {
            "defaults": {"unit": _GRAFANA_UNITS.get(panel.unit, "short"), "custom": {} if is_table else custom},
            "overrides": [],
        },
        "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
    }
    return json.dumps(made, indent=2)


def _address(asked: PageCall) -> str:
    """HOST:PORT of gRPC, as the browser reaches this host."""
    host = asked.call.head.headers.get("host", "127.0.0.1")
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    port = str(asked.call.sources.settings().get("grpc", "")).rpartition(":")[2]
    return f"{name}:{port or '9090'}"

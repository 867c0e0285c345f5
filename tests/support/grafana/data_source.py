"""The back end of Grafana's Prometheus data source, as a program that is asked once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.senders.go_senders import GoSender, built

PROMLIB = GoSender(
    "grafana-data-source",
    "v0.0.8",
    "github.com/grafana/grafana/pkg/promlib",
    source=Path(__file__).with_name("data_source.go"),
)
ANSWERS_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Resource:
    """A call of the query editor or of a template variable. body: a form, or JSON for `suggestions`."""

    path: str
    method: str = "GET"
    query: str = ""
    body: str = ""


@dataclass(frozen=True)
class Asked:
    """Answers of the back end. resources: (status, JSON) in the order of the calls."""

    health: dict[str, Any]
    queries: dict[str, Any]
    resources: list[tuple[int, Any]]

    def frames(self, ref: str) -> list[dict[str, Any]]:
        """Frames of a query that succeeded."""
        result = self.queries[ref]
        assert "error" not in result, result["error"]
        found: list[dict[str, Any]] = result["frames"]
        return found

    def points(self, ref: str) -> int:
        """Points of all frames of a query."""
        return sum(len(frame["data"]["values"][-1]) for frame in self.frames(ref) if frame["data"]["values"])


def ask(
    settings: Mapping[str, Any],
    *,
    queries: Mapping[str, Mapping[str, Any]] | None = None,
    span_ms: tuple[int, int] = (0, 1),
    resources: Sequence[Resource] = (),
) -> Asked:
    """settings: the settings of the data source, as provisioned. queries: models of targets by refId."""
    request = {
        "url": settings["url"],
        "jsonData": settings["jsonData"],
        "secureJsonData": settings["secureJsonData"],
        "fromMs": span_ms[0],
        "toMs": span_ms[1],
        "intervalMs": 15_000,
        "maxDataPoints": 1000,
        "queries": {ref: {"refId": ref, **model} for ref, model in (queries or {}).items()},
        "resources": [
            {"path": one.path, "method": one.method, "query": one.query, "body": one.body} for one in resources
        ],
    }
    done = subprocess.run(
        [str(built(PROMLIB))],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=ANSWERS_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return Asked(
        answer["health"],
        (answer["queries"] or {}).get("results", {}),
        [(one["status"], one["body"]) for one in answer["resources"] or []],
    )

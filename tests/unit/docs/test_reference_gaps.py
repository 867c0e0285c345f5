"""The table of what Prometheus does and this does not is what the code does."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.api.prometheus_server import ApiServer, api_server
from support.deploy_files import ROOT
from tsdb.api.prometheus.call import ApiOptions
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.promql.syntax.features import ALL_FEATURES

PAGE = ROOT / "docs" / "coming-from-prometheus.md"
HEADING = "## What Prometheus does and this does not"
UP = {"__name__": "up", "job": "a"}


def rows(part: str) -> list[tuple[str, str]]:
    """The columns of the reference and of this project, in the rows of one part."""
    table = PAGE.read_text().partition(HEADING)[2].partition("\n## ")[0]
    cells = [re.split(r"(?<!\\\\)\|", line)[1:-1] for line in table.splitlines() if line.startswith("| ")]
    return [(there.strip(), here.strip()) for name, there, here in cells if name.strip() == part]


PATHS = [(there[1:-1], here) for there, here in rows("HTTP API") if re.fullmatch(r"`/api/v1/[^`,]*`", there)]


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server(ApiOptions(query=QueryOptions(ALL_FEATURES))) as server:
        server.samples.add(UP, [(1000, 1.0)])
        yield server


def test_the_table_has_paths() -> None:
    assert len(PATHS) > 20


@pytest.mark.parametrize(("path", "here"), PATHS)
def test_a_path_answers_as_the_table_says(served: ApiServer, path: str, here: str) -> None:
    got = served.send("GET", f"{path}?query=up", b"", {})
    assert got.status == (404 if here.startswith("404") else 200), here
    if here == "empty":
        data = got.json["data"]
        assert not data or not any(data.values()), data


@pytest.mark.parametrize(
    "query",
    [
        *(f"histogram_{what}(up)" for what in ("avg", "count", "sum", "stddev", "stdvar")),
        *("up </ 1", "up >/ 1"),
    ],
)
def test_what_needs_native_histograms_gives_no_series(served: ApiServer, query: str) -> None:
    name = re.sub(r"\(up\)|up | 1", "", query)
    assert any(name in there + here for there, here in rows("PromQL")), name
    assert served.get("query", query=query, time="1").data["result"] == []


def test_samples_have_no_start_timestamps(served: ApiServer) -> None:
    assert any("`start_timestamp()` is 0" in here for _, here in rows("PromQL"))
    (series,) = served.get("query", query="start_timestamp(up)", time="1").data["result"]
    assert series["value"] == [1, "0"]


def test_the_fixed_selector_of_a_later_subquery_has_its_series(served: ApiServer) -> None:
    query = "max_over_time((up @ 1)[5m:1m] offset -5m)"
    assert len(served.get("query_range", query=query, start="60", end="120", step="60").data["result"]) == 1


@pytest.mark.parametrize("path", ["/-/reload", "/-/quit", "/consoles", "/debug/pprof"])
def test_paths_of_a_server_are_unknown(served: ApiServer, path: str) -> None:
    assert any(f"`{path}`" in there and here == "404" for there, here in rows("HTTP API"))
    assert served.send("GET", path, b"", {}).status == 404
    assert served.send("POST", path, b"", {}).status == 404

"""Results of queries as Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow
import pyarrow.ipc
import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, api_server
from tsdb.api.prometheus.arrow import BATCH_ROWS, MEDIA_TYPE

ACCEPT = {"accept": f"application/json;q=0.5, {MEDIA_TYPE}"}
AT_S = NOW_MS / 1000
SERIES = 30


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server() as server:
        for number in range(SERIES):
            points = [(NOW_MS - 1000 * ago, number + ago / 8) for ago in range(0, 3000, 1 + number)]
            server.samples.add({"__name__": "m", "job": f'"é{number:02}'}, points)
        yield server


def ask(served: ApiServer, path: str, **parameters: Any) -> tuple[pyarrow.Table, str]:
    """The table of an answer and its resultType."""
    got = served.get(path, ACCEPT, **parameters)
    assert (got.status, got.headers["content-type"]) == (200, MEDIA_TYPE)
    table = pyarrow.ipc.open_stream(got.body).read_all()
    assert table.schema.names == ["labels", "ts_ms", "value"]
    assert table.schema.types[1:] == [pyarrow.int64(), pyarrow.float64()]
    return table, table.schema.metadata[b"resultType"].decode()


@pytest.mark.parametrize(
    ("path", "parameters", "kind"),
    [
        ("query", {"query": "m", "time": AT_S}, "vector"),
        ("query", {"query": "m[10m]", "time": AT_S}, "matrix"),
        ("query", {"query": "m", "time": AT_S, "limit": 3}, "vector"),
        ("query", {"query": "m[10m]", "time": AT_S, "limit": 3}, "matrix"),
        ("query", {"query": "nothing"}, "vector"),
        ("query_range", {"query": "m > 100", "start": AT_S - 2900, "end": AT_S, "step": 1}, "matrix"),
        ("query_range", {"query": "rate(m[2m])", "start": AT_S - 5000, "end": AT_S, "step": 60}, "matrix"),
    ],
)
def test_rows_are_those_of_json(served: ApiServer, path: str, parameters: dict[str, Any], kind: str) -> None:
    table, found = ask(served, path, **parameters)
    assert found == kind
    wanted = [
        (json.dumps(row["metric"], sort_keys=True, separators=(",", ":"), ensure_ascii=False), round(at * 1000), value)
        for row in served.get(path, **parameters).data["result"]
        for at, value in row.get("values", [row.get("value")])
    ]
    columns = (table.column(name).to_pylist() for name in ("labels", "ts_ms", "value"))
    assert [(labels, at, float(value)) for labels, at, value in wanted] == list(zip(*columns, strict=True))


def test_large_answers_come_in_batches(served: ApiServer) -> None:
    asked: dict[str, Any] = {"query": "m", "start": AT_S - 2900, "end": AT_S, "step": 0.5}
    got = served.get("query_range", ACCEPT, **asked)
    batches = list(pyarrow.ipc.open_stream(got.body))
    assert len(batches) == 3
    assert max(len(batch) for batch in batches) <= BATCH_ROWS
    assert sum(len(batch) for batch in batches) == sum(
        len(row["values"]) for row in served.get("query_range", **asked).data["result"]
    )


def test_scalars_and_strings(served: ApiServer) -> None:
    table, kind = ask(served, "query", query="1 / 0", time=1.5)
    assert (kind, table.to_pylist()) == ("scalar", [{"labels": "{}", "ts_ms": 1500, "value": np.inf}])
    table, kind = ask(served, "query", query='"a"')
    assert (kind, len(table), table.schema.metadata[b"text"]) == ("string", 0, b"a")


def test_annotations_are_metadata(served: ApiServer) -> None:
    table, _ = ask(served, "query", query="rate(m[5m]) + quantile(2, m)", limit=1)
    assert json.loads(table.schema.metadata[b"infos"])[0].startswith("PromQL info: ")
    assert json.loads(table.schema.metadata[b"warnings"])[0].startswith("PromQL warning: quantile value")
    table, _ = ask(served, "query", query="m", limit=1)
    assert json.loads(table.schema.metadata[b"warnings"]) == ["results truncated due to limit"]


@pytest.mark.parametrize("accept", ["*/*", f"{MEDIA_TYPE};q=0", "application/json"])
def test_json_stays_the_default(served: ApiServer, accept: str) -> None:
    got = served.get("query", {"accept": accept}, query="m")
    assert got.headers["content-type"] == "application/json"


def test_errors_are_json(served: ApiServer) -> None:
    assert served.get("query", ACCEPT, query="rate(m)").failure[:2] == (400, "bad_data")
